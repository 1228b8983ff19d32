"""Dense products of a GPU and their epilogues against float64. Small integers where sums must be exact."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.kernels.dense.dense import (
    activation_gradients,
    linear_gradients,
    matmul,
    matmul_aligned,
    scales_rows,
    weight_gradient,
)
from fullgnn.kernels.dropout.philox import Mask, drop_
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue, Kernel, LocalCSR, Tile32, TritonCSR
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import empty_aligned, with_padding
from fullgnn.nn import Activation, Dropout, GCNConv, Layer
from fullgnn.nn.linear import linear
from fullgnn.schemes import Block, BlockProduct
from tests.dense_block import DenseMultiplication
from tests.kernels.dense.dense import integers, within
from tests.kernels.dropout.philox import reference as definition
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton

SHAPES = [(1, 1), (3, 8), (8, 3), (41, 47), (47, 41), (100, 64), (602, 41), (128, 129)]
ROWS = [1, 37, 300]  # never a multiple of a tile
FEW = [37]  # rows of wide matrices, so that the interpreter is quick


@pytest.fixture(autouse=True)
def _triton_on_cpu(triton_on_cpu) -> None:
    """Every test runs on a CPU where there is no GPU."""


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Fill memory that is not initialised with NaNs."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(8, device=DEVICE).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Epilogue]:
    """A list that grows with each epilogue that is a launch of its own, a pass over a product."""
    from fullgnn.kernels.epilogue import _epilogue_gpu

    made: list[Epilogue] = []
    path = _epilogue_gpu.apply_gpu
    monkeypatch.setattr(_epilogue_gpu, "apply_gpu", lambda y, epilogue: made.append(epilogue) or path(y, epilogue))
    return made


def whole(*shape: int, seed: int) -> Tensor:
    return integers(*shape, dtype=torch.float32, seed=seed).to(DEVICE)


def mask(num_rows: int) -> Mask:
    """A dropout mask with p = 0.5, whose factor 2 keeps integers exact."""
    node_id = 7 * torch.arange(num_rows, device=DEVICE).flip(0)
    return Mask(node_id, 0.5, 2**40 + 3, torch.tensor(5, device=DEVICE), 2)


def expected(x: Tensor, weight: Tensor, epilogue: Epilogue) -> Tensor:
    """One operation after the other, in float64 on the CPU."""
    y = x.cpu().double() @ weight.cpu().double()
    if epilogue.scale is not None:
        y = epilogue.scale.cpu().double()[:, None] * y
    if epilogue.bias is not None:
        y = y + epilogue.bias.cpu().double()
    if epilogue.relu:
        y = y.relu()
    if epilogue.dropout is not None:
        kept = drop_(torch.ones_like(y, dtype=torch.bfloat16).to(DEVICE), epilogue.dropout).cpu() > 0
        y = torch.where(kept, y * epilogue.dropout.scale, 0)
    return y


@pytest.mark.sample(2)
@pytest.mark.parametrize(("f", "g"), SHAPES)
def test_products(f: int, g: int) -> None:
    weight, bias = whole(f, g, seed=1), whole(g, seed=2)
    sizes = ROWS if f * g < 5000 else FEW
    for number, n in enumerate(sizes):
        x, scale = whole(n, f, seed=0), whole(n, seed=3)
        for epilogue in (
            Epilogue(None, bias),
            Epilogue(None, None, True),
            Epilogue(None, bias, True, mask(n)),
        ):
            y = matmul(within(x, 3 * number), weight, epilogue)
            assert torch.equal(y.cpu().double(), expected(x, weight, epilogue)), (n, epilogue)
            assert y.is_contiguous()
        for of_rows in (None, scale):
            rows = matmul_aligned(x.t().contiguous().t(), weight.t().contiguous().t(), of_rows)
            assert torch.equal(rows.cpu().double(), expected(x, weight, Epilogue(of_rows))), n
            line = 32 if DEVICE.type == "cuda" else 64
            assert rows.stride() == (-(-g * 4 // line) * line // 4, 1) and rows.data_ptr() % line == 0


@pytest.mark.parametrize(("f", "g"), [(100, 47), (602, 16), (64, 602)])
def test_products_are_of_float32_quality(f: int, g: int) -> None:
    """Errors are at most 2^-20 of the sum of magnitudes; TF32, with numbers of 11 bits, is far less precise."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, generator=generator).to(DEVICE) for shape in ((131, f), (f, g), (g,)))
    bound = 2**-20 * (x.cpu().double().abs() @ weight.cpu().double().abs() + bias.cpu().double().abs())
    for epilogue in (Epilogue(None, bias), Epilogue(None, bias, relu=True)):
        error = matmul(x, weight, epilogue).cpu().double() - expected(x, weight, epilogue)
        assert (error.abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_which_epilogues_are_a_pass_of_their_own(dtype: torch.dtype, passes: list[Epilogue]) -> None:
    """cuBLAS adds a bias; scale, ReLU and dropout take one launch together, and a product alone takes none."""
    x, weight, bias, scale = (
        whole(*shape, seed=seed).to(dtype) for seed, shape in enumerate([(40, 16), (16, 20), (20,), (40,)])
    )
    for epilogue in (NO_EPILOGUE, Epilogue(None, bias)):
        assert torch.equal(matmul(x, weight, epilogue).cpu().double(), expected(x, weight, epilogue))
    assert torch.equal(matmul_aligned(x, weight).cpu().double(), expected(x, weight, NO_EPILOGUE)) and not passes
    for number, epilogue in enumerate((Epilogue(None, bias, True), Epilogue(None, bias, True, mask(40))), 1):
        assert torch.equal(matmul(x, weight, epilogue).cpu().double(), expected(x, weight, epilogue))
        assert len(passes) == number
    assert torch.equal(matmul_aligned(x, weight, scale).cpu().double(), expected(x, weight, Epilogue(scale)))
    assert len(passes) == 3 and scales_rows(x) == (dtype == torch.float32)


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (5, 3, 0), (0, 0, 0)])
def test_nothing_to_multiply(shape: tuple[int, int, int]) -> None:
    n, f, g = shape
    x, weight, bias = whole(n, f, seed=0), whole(f, g, seed=1), whole(g, seed=2)
    for epilogue in (Epilogue(None, bias), Epilogue(None, bias, True)):
        assert torch.equal(matmul(x, weight, epilogue).cpu().double(), expected(x, weight, epilogue))
    scale = whole(n, seed=3)
    assert torch.equal(matmul_aligned(x, weight, scale).cpu().double(), expected(x, weight, Epilogue(scale)))


@pytest.mark.parametrize("kernel", [TritonCSR(), Tile32()], ids=["csr", "tile32"])
@pytest.mark.parametrize("scaled", [False, True])
def test_nothing_depends_on_the_padding_of_a_product(kernel: Kernel, scaled: bool) -> None:
    """NaNs lie behind the columns of X and of X W. A sparse product and a gradient read both in whole vectors."""
    x, weight, scale = whole(37, 41, seed=0), whole(41, 10, seed=1), whole(37, seed=2)
    rows = empty_aligned(37, 41, like=x).copy_(x)
    transformed = matmul_aligned(rows, weight, scale if scaled else None)
    for matrix in (rows, transformed):
        behind = with_padding(matrix)[:, matrix.shape[1] :]
        assert behind.numel() and behind.isnan().all() and gpu.row_unit(matrix) == 4
    exact = expected(x, weight, Epilogue(scale if scaled else None))
    full = torch.ones(8, 37, dtype=torch.bool)
    adj, out = csr_of(full), transformed.new_empty(8, 10)
    kernel.spmm(kernel.prepare(adj, torch.float32), transformed, out, accumulate=False)
    assert torch.equal(out.cpu().double(), full.double() @ exact)
    assert torch.equal(weight_gradient(rows, transformed).cpu().double(), x.cpu().double().t() @ exact)


def csr_of(pattern: Tensor) -> LocalCSR:
    """A 0/1 matrix on ``DEVICE``."""
    indptr = torch.zeros(len(pattern) + 1, dtype=torch.int32)
    indptr[1:] = pattern.sum(1).cumsum(0)
    return LocalCSR(indptr.to(DEVICE), pattern.nonzero()[:, 1].int().to(DEVICE), None, *pattern.shape)


@pytest.mark.parametrize(("f", "g"), [(100, 64), (64, 47), (16, 130)])
def test_dropout_in_a_product_against_its_definition(f: int, g: int) -> None:
    """The definition makes one Philox call for each element, in NumPy; the numbers do not fit into TF32."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((131, f), (f, g), (g,)))
    node_id = torch.randint(0, 2**32, (131,), generator=generator)
    for stream in (
        {"p": 0.3, "seed": 2**40 + 17, "epoch": 3, "layer": 1},
        {"p": 0.9, "seed": 2**64 - 1, "epoch": 2**32 - 1, "layer": 2},
    ):
        exact = definition((x.double() @ weight.double() + bias.double()).relu(), node_id, **stream)
        epoch = torch.tensor(stream["epoch"], device=DEVICE)
        mask = Mask(node_id.to(DEVICE), stream["p"], stream["seed"], epoch, stream["layer"])
        y = matmul(x.to(DEVICE), weight.to(DEVICE), Epilogue(None, bias.to(DEVICE), True, mask)).cpu().double()
        bound = 2**-20 * (x.double().abs() @ weight.double().abs() + bias.double().abs()) / (1 - stream["p"])
        assert ((y - exact).abs() <= bound).all()
        kept = definition(torch.ones(131, g), node_id, **stream) > 0
        assert (y[~kept] == 0).all() and (exact > 0).any()


@pytest.mark.sample(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("h", [1, 3, 8, 16, 41, 100, 129, 602])
def test_activation_gradients(h: int, dtype: torch.dtype) -> None:
    for number, n in enumerate((1, 37, 1100) if h in (8, 41) else FEW):
        g, y, row_scale = (
            integers(n, *more, dtype=dtype, seed=k).to(DEVICE) for k, more in enumerate([(h,), (h,), ()])
        )
        for output, scale in ((None, row_scale), (y, None), (y, row_scale)):
            masked = g if output is None else torch.where(y > 0, 3 * g, 0)
            arguments = within(g, number), None if output is None else within(y, 2 * number), 3.0, scale
            gradients, sums = activation_gradients(*arguments)
            assert torch.equal(gradients, masked if scale is None else masked * scale[:, None])
            assert torch.equal(sums, masked.sum(0))
    assert gradients.data_ptr() % 32 == 0 and gradients.stride(0) * dtype.itemsize % 32 == 0, "rows begin a line"
    across = g[0].expand(n, h)  # as the gradient of a sum is
    assert torch.equal(activation_gradients(across, y, 1.0)[0], torch.where(y > 0, across, 0))


def test_sums_of_gradients_are_of_float32_quality() -> None:
    g = torch.randn(1500, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    _, sums = activation_gradients(g, None, 1.0, torch.ones(1500, device=DEVICE))
    error = sums.cpu().double() - g.cpu().double().sum(0)
    assert (error.abs() <= 2**-20 * g.cpu().double().abs().sum(0)).all()


def test_activation_gradients_of_no_rows() -> None:
    empty = torch.empty(0, 5, device=DEVICE)
    masked, sums = activation_gradients(empty, empty, 2.0, torch.empty(0, device=DEVICE))
    assert masked.shape == (0, 5) and torch.equal(sums, torch.zeros(5, device=DEVICE))


def test_a_nan_of_the_output_lets_the_gradient_pass() -> None:
    output = torch.tensor([[torch.nan, 1, 0, -1]], device=DEVICE).repeat(3, 1)
    g = torch.ones(3, 4, device=DEVICE)
    masked, sums = activation_gradients(g, output, 1.0)
    assert masked.tolist() == [[1, 1, 0, 0]] * 3 and sums.tolist() == [3, 3, 0, 0]


def test_linear_gradients() -> None:
    x, g, y = (whole(50, width, seed=seed) for seed, width in enumerate((9, 5, 5)))
    exact = torch.where(y > 0, 2 * g, 0)
    for keep in (False, True):
        gradient, sums, masked = linear_gradients(x, g, y, 2.0, keep_masked=keep)
        assert torch.equal(gradient, x.t() @ exact) and torch.equal(sums, exact.sum(0))
        assert torch.equal(masked, exact) if keep else masked is None


# ---- layers -------------------------------------------------------------------------------------------------------


def close(computed: list[Tensor], exact: list[Tensor]) -> None:
    """The tolerance allows a few hundred float32 roundings of numbers of order 1."""
    for tensor, exact_tensor in zip(computed, exact, strict=True):
        torch.testing.assert_close(tensor.cpu().double(), exact_tensor, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("drops", [False, True])
def test_linear_against_autograd(drops: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(*shape, generator=generator) for shape in ((70, 17), (17, 41), (41,))]
    weigh, node_id = torch.randn(70, 41, generator=generator), torch.arange(70).flip(0)
    drop = Dropout(0.4, layer=1, seed=3)

    def gradients(device: torch.device, dtype: torch.dtype) -> list[Tensor]:
        x, weight, bias = (tensor.clone().to(device, dtype).requires_grad_() for tensor in tensors)
        if dtype == torch.float32:
            y = linear(x, weight, bias, Activation(True, drop.to(device).mask(node_id.to(device)) if drops else None))
        else:
            y = (x @ weight + bias).relu()
            y = drop.to(device)(y, node_id) if drops else y
        (y * weigh.to(device, dtype)).sum().backward()
        return [y.detach(), *(tensor.grad for tensor in (x, weight, bias))]

    close(gradients(DEVICE, torch.float32), gradients(torch.device("cpu"), torch.float64))


@pytest.mark.sample(5)
@pytest.mark.parametrize("rows", [None, [0, 3, 4, 30]], ids=["all rows", "rows with loss"])
@pytest.mark.parametrize("runs_triton", [True, False])
@pytest.mark.parametrize("activation", ["identity", "relu", "relu and dropout"])
@pytest.mark.parametrize(("order", "wants_x"), [("transform", True), ("transform", False), ("propagate", True)])
def test_convolution_against_autograd(
    order: str,
    wants_x: bool,
    activation: str,
    runs_triton: bool,
    rows: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The producer of a sparse product's input applies the scale of the product where it can, and only there."""
    monkeypatch.setattr(gpu, "has_triton", lambda: runs_triton)
    generator = torch.Generator().manual_seed(0)
    matrix = (torch.rand(33, 33, generator=generator) < 0.2).float()
    before, after = (torch.rand(33, generator=generator) + 0.5 for _ in range(2))
    index = None if rows is None else torch.tensor(rows, device=DEVICE)
    scales = before.to(DEVICE), after.to(DEVICE)
    matrix, out_scale = (tensor.to(DEVICE) if rows is None else tensor.to(DEVICE)[index] for tensor in (matrix, after))
    forward = DenseMultiplication(matrix, scales[0], out_scale)
    backward = DenseMultiplication(matrix.t(), out_scale, scales[0])
    node_id = 3 * torch.arange(33, device=DEVICE)
    block = Block(node_id, {Propagation(): BlockProduct(forward, backward)}, index)
    conv = GCNConv(20, 7, generator).to(DEVICE)
    conv.spmm_order = order
    torch.nn.init.normal_(conv.bias, generator=torch.Generator(DEVICE).manual_seed(2))
    start = torch.randn(33, 20, generator=generator)
    drop = Dropout(0.4, layer=1, seed=3).to(DEVICE) if activation == "relu and dropout" else None

    x = start.clone().to(DEVICE).requires_grad_(wants_x)
    y = Layer(conv, None if activation == "identity" else torch.nn.ReLU(), drop)(x, block)
    weigh = torch.randn(y.shape, generator=generator)
    (y * weigh.to(DEVICE)).sum().backward()

    x64 = start.double().requires_grad_(wants_x)
    parameters = [tensor.detach().cpu().double().requires_grad_() for tensor in (conv.linear.weight, conv.bias)]
    dense = (out_scale[:, None] * matrix * scales[0]).cpu().double()
    y64 = dense @ (x64 @ parameters[0]) + parameters[1]
    if activation != "identity":
        y64 = y64.relu()
    if drop is not None:
        kept = drop(torch.ones(y.shape, device=DEVICE), block.own_id).cpu() > 0
        y64 = torch.where(kept, y64 / 0.6, 0)
    (y64 * weigh.double()).sum().backward()
    close(
        [y.detach(), conv.linear.weight.grad, conv.bias.grad, *([x.grad] if wants_x else [])],
        [y64.detach(), *(tensor.grad for tensor in parameters), *([x64.grad] if wants_x else [])],
    )
    assert [*forward.taken, *backward.taken] == ([runs_triton, runs_triton] if order == "transform" else [False, False])
