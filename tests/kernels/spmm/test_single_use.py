"""The product of a GPU for matrices that are multiplied once or twice, against dense products in float64."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.errors import UnsupportedError
from fullgnn.kernels.edges.index import transpose, transpose_torch
from fullgnn.kernels.spmm import LocalCSR, TritonCSR
from fullgnn.kernels.spmm.reading import CHAIN
from fullgnn.kernels.spmm.single_use import SingleUseCSR, SingleUseTriton, single_use_kernel
from fullgnn.kernels.support import gpu
from fullgnn.sampling.products import SampledMultiplication, SampledProduct, transposed
from tests.gpu_code.host_waits import HostWaits
from tests.kernels.spmm.matrices import local_csr
from tests.kernels.spmm.on_gpu import MATRICES, check, dense_mask, on_device
from tests.triton_device import DEVICE, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]  # NumPy warns of padding


@pytest.fixture(autouse=True)
def few_lanes(triton_on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Without a GPU, Triton's interpreter runs the kernel. Few lanes give small matrices long rows: the fixture sets
    16, and its value sets another number."""
    from fullgnn.kernels.spmm import _single_use_gpu

    def choose(number: int) -> None:
        monkeypatch.setattr(_single_use_gpu, "num_lanes", lambda tuning, num_columns: number)

    choose(16)
    return choose


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU takes the way of a GPU."""
    monkeypatch.setattr(gpu, "AS_ON_GPU", True)


def skewed(num_cols: int = 90) -> np.ndarray:
    """Rows of no edge and of one, and two hubs, one of them at the end: a program has short and long rows."""
    mask = np.zeros((60, num_cols), bool)
    mask[np.arange(0, 60, 2), np.arange(0, 60, 2) % num_cols] = True
    mask[[11, 59]] = True
    return mask


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weighted"])
@pytest.mark.parametrize("matrix", ["skewed", *MATRICES])
def test_product(matrix: str, weighted: bool, dtype: torch.dtype) -> None:
    """With and without what is there before, with all parts of an epilogue, in rows of any stride."""
    mask = skewed() if matrix == "skewed" else MATRICES[matrix]
    for number, width in enumerate((41, 100) if matrix == "skewed" else (17, 47)):
        check(SingleUseTriton(), mask, weighted, dtype, width, number)


def test_every_width(every_case: bool) -> None:
    """A GPU tests widths up to 700; the interpreter some of them, or with --all 131."""
    widths = [*range(1, 701)] if DEVICE.type == "cuda" else [1, 4, 129]
    for number, width in enumerate([*range(1, 129), 256, 602, 700] if every_case else widths):
        check(SingleUseTriton(), dense_mask(9, 40), False, torch.float32, width, number)


@pytest.mark.parametrize("weight", [None, 2.0])
def test_what_rounding_takes_from_a_long_sum_is_added_later(
    weight: float | None, few_lanes: Callable[[int], None]
) -> None:
    """2^24 and then, in each of ten stretches, one 1, which a running sum in float32 would lose every time."""
    few_lanes(1)
    indices = torch.zeros(11, CHAIN, dtype=torch.int32)
    indices[0, 3], indices[1:, 5] = 1, 2
    csr = LocalCSR(torch.tensor([0, indices.numel()], dtype=torch.int32), indices.flatten(), None, 1, 3)
    csr = replace(csr, values=None if weight is None else torch.full((csr.nnz,), weight))
    x, out = torch.tensor([[0.0], [2.0**24], [1.0]], device=DEVICE), torch.empty(1, 1, device=DEVICE)
    kernel = SingleUseTriton()
    kernel.spmm(kernel.prepare(on_device(csr), x.dtype), x, out, False)
    assert out.item() == (2**24 + 10) * (weight or 1)


@pytest.mark.gpu
@pytest.mark.parametrize("weight", [None, 0.3])
def test_a_long_row_of_equal_addends(weight: float | None, few_lanes: Callable[[int], None]) -> None:
    """All roundings of a running sum would point the same way."""
    few_lanes(64)
    degree = 4_194_304
    indptr = torch.tensor([0, 3, degree + 3], dtype=torch.int32)
    values = None if weight is None else torch.full((degree + 3,), weight)
    csr = on_device(LocalCSR(indptr, torch.zeros(degree + 3, dtype=torch.int32), values, 2, 1))
    x = (torch.rand(1, 8, generator=torch.Generator().manual_seed(0)) + 0.05).to(DEVICE)
    kernel, out = SingleUseTriton(), torch.empty(2, 8, device=DEVICE)
    kernel.spmm(kernel.prepare(csr, x.dtype), x, out, False)
    factor = 1 if values is None else float(values[0])
    expected = x.double() * torch.tensor([[3.0], [degree]], device=DEVICE) * factor
    assert float(((out.double() - expected) / expected).abs().max()) <= 1e-6


def sampled(weighted: bool, scaled: bool, dtype: torch.dtype = torch.float64) -> tuple[SampledProduct, Tensor]:
    """A product as a block has it, with its matrix in float64."""
    csr, dense = local_csr(skewed(), weighted)
    csr = on_device(csr)
    row, col = (torch.rand(size, dtype=dtype) + 0.5 if scaled else None for size in dense.shape)
    if row is not None and col is not None:
        dense = row.double()[:, None] * dense * col.double()
        row, col = row.to(DEVICE), col.to(DEVICE)
    csr = csr if csr.values is None else LocalCSR(csr.indptr, csr.indices, csr.values.to(dtype), *dense.shape)
    return SampledProduct(SampledMultiplication(csr, row, col, dtype), partial(transposed, csr)), dense


@pytest.mark.parametrize(("weighted", "scaled"), [(False, True), (True, False)])
def test_both_passes_of_a_block_are_one_launch_each_without_a_wait(on_gpu: None, weighted: bool, scaled: bool) -> None:
    product, dense = sampled(weighted, scaled)
    x = torch.randn(dense.shape[1], 9, dtype=torch.float64, device=DEVICE, requires_grad=True)
    grad = torch.randn(dense.shape[0], 9, dtype=torch.float64, device=DEVICE)
    with HostWaits([x, grad], product.tensors()) as waits:
        out = product.spmm(x)
        out.backward(grad)
    assert waits.counts == {}
    assert waits.num_launches == (0 if DEVICE.type == "cuda" else 2)
    assert x.grad is not None
    torch.testing.assert_close(out.detach().cpu(), dense @ x.detach().cpu(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(x.grad.cpu(), dense.T @ grad.cpu(), rtol=1e-12, atol=1e-12)


def test_the_way_of_a_cpu_stays() -> None:
    assert type(single_use_kernel(torch.device("cpu"), torch.float32)) is SingleUseCSR


def test_what_it_does_not_multiply_is_refused(on_gpu: None) -> None:
    csr, _ = local_csr(skewed(), False)
    with pytest.raises(UnsupportedError, match="float32 and float64"):
        SingleUseTriton().prepare(on_device(csr), torch.bfloat16)
    assert type(single_use_kernel(DEVICE, torch.float32)) is SingleUseTriton


@pytest.mark.parametrize("weighted", [False, True])
def test_the_transpose_of_operations_is_the_compiled_one(weighted: bool) -> None:
    for mask in (skewed(), np.zeros((3, 4), bool), np.ones((1, 5), bool)):
        csr, _ = local_csr(mask, weighted)
        with HostWaits([array for array in (csr.indptr, csr.indices, csr.values) if array is not None]) as waits:
            by_torch = transpose_torch(csr)
        assert waits.counts == {}
        expected = transpose(csr)
        for name in ("indptr", "indices", "places", "values"):
            ours, other = getattr(by_torch, name), getattr(expected, name)
            assert (ours is None and other is None) or (ours.dtype == other.dtype and torch.equal(ours, other)), name


def test_it_adds_as_the_kernel_with_bins_does() -> None:
    """Both kernels within rounding of each other, of random numbers."""
    csr, dense = local_csr(skewed(), False)
    x, products = torch.randn(dense.shape[1], 33, device=DEVICE), []
    for kernel in (SingleUseTriton(), TritonCSR()):
        out = torch.empty(dense.shape[0], 33, device=DEVICE)
        kernel.spmm(kernel.prepare(on_device(csr), x.dtype), x, out, False)
        products.append(out)
    torch.testing.assert_close(*products, rtol=1e-5, atol=1e-5)
