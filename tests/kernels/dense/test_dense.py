"""Dense products and their gradients against float64. Numbers are small integers where sums must be exact."""

import pytest
import torch
from torch import Tensor

from fullgnn.kernels.dense import _dense_cpu, dense
from fullgnn.kernels.dense.dense import (
    Picked,
    activation_gradients,
    linear_gradients,
    matmul,
    matmul_aligned,
    matmul_nt,
)
from fullgnn.kernels.spmm import Epilogue
from fullgnn.kernels.support import aligned
from fullgnn.nn import Activation, Dropout
from fullgnn.nn.linear import linear
from tests.kernels.dense.dense import REGISTERS, integers, within

DTYPES = [torch.float32, torch.float64]


@pytest.fixture(autouse=True)
def compiled_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "MIN_WORK", 1)


SHAPES = [(0, 5), (1, 1), (3, 2), (16, 8), (17, 47), (47, 17), (100, 64), (129, 7), (602, 41)]
CASES = [
    *(("AVX-512", torch.float32, f, h) for f, h in SHAPES),
    *(("AVX-512", torch.float64, f, h) for f, h in ((1, 1), (17, 47), (129, 7))),
    *((kind, torch.float32, f, h) for kind in ("AVX2", "NEON") for f, h in ((17, 47), (129, 7))),
]


@pytest.mark.sample(16)
@pytest.mark.parametrize(("kind", "dtype", "f", "h"), CASES)
def test_linear_gradients(kind: str, dtype: torch.dtype, f: int, h: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_dense_cpu, aligned):
        monkeypatch.setattr(module, "registers", lambda: REGISTERS[kind])
    monkeypatch.setattr(_dense_cpu, "MIN_ROWS", 100)
    _dense_cpu.shape_of.cache_clear()
    for number, n in enumerate((0, 1, 130, 700)):
        torch.set_num_threads(1 + number % 3)
        x, g, y = (integers(n, width, dtype=dtype, seed=seed) for seed, width in enumerate((f, h, h)))
        for output, keep in ((None, False), (None, True), (y, False), (y, True)):
            masked = g if output is None else torch.where(y > 0, 2 * g, 0)
            arguments = [within(x, 3 * number), within(g, number), None if output is None else within(y, 2 * number)]
            gradient, sums, kept = linear_gradients(*arguments, 2.0, keep_masked=keep)
            assert torch.equal(gradient.double(), x.double().t() @ masked.double()), (n, keep)
            assert torch.equal(sums.double(), masked.double().sum(0)), (n, keep)
            assert (kept is not None) == keep
            assert kept is None or torch.equal(kept, masked)
    _dense_cpu.shape_of.cache_clear()


@pytest.mark.sample(8)
@pytest.mark.parametrize(("kind", "dtype", "f", "h"), [case for case in CASES if case[2] > 0])
def test_gradients_of_rows_that_lie_elsewhere(
    kind: str, dtype: torch.dtype, f: int, h: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X has a second half; below ``MIN_WORK``, a copy of it."""
    for module in (_dense_cpu, aligned):
        monkeypatch.setattr(module, "registers", lambda: REGISTERS[kind])
    monkeypatch.setattr(_dense_cpu, "MIN_ROWS", 100)
    _dense_cpu.shape_of.cache_clear()
    for number, n in enumerate((1, 130, 700)):
        x, g, y = (integers(n, width, dtype=dtype, seed=seed) for seed, width in enumerate((f, h, h)))
        matrix = integers(900, f, dtype=dtype, seed=5)
        index = torch.randint(900, (n,), generator=torch.Generator().manual_seed(n), dtype=torch.int32)
        masked, both = torch.where(y > 0, 2 * g, 0), torch.cat([x, matrix[index]], dim=1)
        for least in (1, 1 << 40):
            monkeypatch.setattr(dense, "MIN_WORK", least)
            picked = Picked(within(matrix, number), index)
            gradient, sums, kept = linear_gradients(within(x, number), g, y, 2.0, keep_masked=True, picked=picked)
            assert torch.equal(gradient.double(), both.double().t() @ masked.double()), n
            assert torch.equal(sums.double(), masked.double().sum(0)) and kept is not None and torch.equal(kept, masked)
    _dense_cpu.shape_of.cache_clear()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, g, y = (torch.randn(9000, width, dtype=dtype, generator=generator) for width in (50, 20, 20))
    results = []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        results.append(linear_gradients(x, g, y, 1.25, keep_masked=True))
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other))


@pytest.mark.parametrize("num_rows", [1000, 70_001, 1 << 22])
def test_long_sums_are_exact_to_working_precision(num_rows: int) -> None:
    """Sums of equal rows, where roundings all go the same way, err by at most 1e-6 of the sum of magnitudes."""
    generator = torch.Generator().manual_seed(0)
    row_of_x, row_of_g = (torch.rand(width, generator=generator) + 0.05 for width in (3, 5))
    x, g = (row.expand(num_rows, len(row)).contiguous() for row in (row_of_x, row_of_g))
    for output in (None, torch.ones_like(g)):
        gradient, sums, _ = linear_gradients(x, g, output, 1.0, keep_masked=False)
        exact = num_rows * torch.outer(row_of_x.double(), row_of_g.double())
        assert ((gradient.double() - exact).abs() <= 1e-6 * exact).all()
        assert ((sums.double() - num_rows * row_of_g.double()).abs() <= 1e-6 * num_rows * row_of_g.double()).all()


def test_a_nan_is_not_hidden() -> None:
    """Where the output of the ReLU is NaN, the gradient passes, as in torch, so that a diverging run shows."""
    x, g = torch.ones(3, 2), torch.ones(3, 4)
    output = torch.tensor([[torch.nan, 1, 0, -1]]).repeat(3, 1)
    _, sums, masked = linear_gradients(x, g, output, 1.0, keep_masked=True)
    assert sums.tolist() == [3, 3, 0, 0]
    assert torch.equal(masked, torch.ops.aten.threshold_backward(g, output, 0))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
@pytest.mark.parametrize(("f", "g"), [(1, 1), (5, 16), (33, 47), (100, 64)])
def test_products(f: int, g: int, dtype: torch.dtype) -> None:
    for n in (0, 1, 300):
        x, weight = integers(n, f, dtype=dtype, seed=0), integers(f, g, dtype=dtype, seed=1)
        bias, gradient = integers(g, dtype=dtype, seed=2), integers(n, g, dtype=dtype, seed=3)
        exact = (x.double() @ weight.double()).to(dtype)
        assert torch.equal(matmul(x, weight), exact)
        assert torch.equal(matmul_aligned(x, weight), exact)
        assert torch.equal(matmul_nt(gradient, weight), (gradient.double() @ weight.double().t()).to(dtype))
        if dtype != torch.bfloat16:  # bfloat16 rounds between the product and the sum
            assert torch.equal(matmul(x, weight, Epilogue(None, bias)), exact + bias)
            assert torch.equal(matmul(x, weight, Epilogue(None, bias, relu=True)), (exact + bias).relu())


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_rows_begin_a_line(device: str, dtype: torch.dtype) -> None:
    y = matmul_aligned(torch.ones(10, 3, dtype=dtype, device=device), torch.ones(3, 37, dtype=dtype, device=device))
    line = 64 if device == "cpu" else 32
    stride = -(-37 * dtype.itemsize // line) * line // dtype.itemsize
    assert (y.shape, y.stride()) == ((10, 37), (stride, 1)) and (y == 3).all()
    assert y.data_ptr() % line == 0


def test_scaled_rows() -> None:
    x, weight, scale = (integers(*shape, dtype=torch.float32, seed=3) for shape in ((30, 7), (7, 37), (30,)))
    for dtype in DTYPES:
        y = matmul_aligned(x.to(dtype), weight.to(dtype), scale.to(dtype))
        assert torch.equal(y.double(), scale.double()[:, None] * (x.double() @ weight.double()))


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ["identity", "relu", "relu and dropout", "evaluation"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("wants_x", [False, True])
def test_linear_against_autograd(wants_x: bool, with_bias: bool, kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((40, 7), (7, 5), (5,))]
    weigh = torch.randn(40, 5, dtype=torch.float64, generator=generator)
    node_id = torch.arange(40).flip(0)
    drop = Dropout(0.4, layer=1, seed=3).train(kind != "evaluation")
    activation = Activation(kind != "identity", None if kind in ("identity", "relu") else drop.mask(node_id))
    assert (activation.dropout is not None) == (kind == "relu and dropout")

    def gradients(ours: bool) -> list[Tensor]:
        x, weight, bias = (tensor.clone().requires_grad_() for tensor in tensors)
        x.requires_grad_(wants_x)
        if ours:
            y = linear(x, weight, bias if with_bias else None, activation)
        else:
            y = x @ weight + (bias if with_bias else 0)
            y = y.relu() if activation.relu else y
            y = drop(y, node_id) if activation.dropout else y
        (y * weigh).sum().backward()
        return [y.detach(), *(tensor.grad for tensor in (x, weight, bias) if tensor.grad is not None)]

    computed, expected = gradients(ours=True), gradients(ours=False)
    assert len(computed) == len(expected) == 2 + wants_x + with_bias
    assert (computed[0] == 0).any() == activation.relu
    for tensor, exact in zip(computed, expected):
        torch.testing.assert_close(tensor, exact, rtol=0, atol=1e-12)


def test_activation_gradients() -> None:
    g, y = (integers(300, 37, dtype=torch.float32, seed=seed) for seed in (0, 1))
    for output, expected in ((None, g), (y, torch.where(y > 0, 3 * g, 0))):
        masked, sums = activation_gradients(g, output, 3.0)
        assert torch.equal(masked, expected) and torch.equal(sums, expected.sum(0))
