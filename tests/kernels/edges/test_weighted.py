"""Products with values per edge, and their gradients, against dense autograd in float64."""

import pytest
import torch
from torch import Tensor

from fullgnn.kernels.edges import _rows_cpu
from fullgnn.kernels.edges.index import transpose
from fullgnn.kernels.edges.weighted import edge_dots, edge_spmm_into, edge_spmm_transposed
from fullgnn.kernels.spmm import LocalCSR
from tests.kernels.edges.blocks import block_for, device_of, from_edges, local_csr, pattern
from tests.kernels.edges.weighted import FLOAT32, FLOAT64, check, normal

HEADS = [(8, 8, FLOAT32), (1, 41, FLOAT32), (8, 7, FLOAT64), (3, 1, FLOAT32)]
MORE_HEADS = [(k, d, dtype) for k in (1, 8) for d in (1, 7, 8, 41) for dtype in (FLOAT32, FLOAT64)]
SHAPES = [(0, 5), (5, 0), (0, 0), (1, 1)]


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy warns where Triton's interpreter divides by 0


def dense_product(mask: Tensor, values: Tensor, x: Tensor, grad: Tensor) -> list[Tensor]:
    """The result and its gradients by autograd."""
    values, x = values.clone().requires_grad_(), x.clone().requires_grad_()
    out = torch.einsum("nmk,mkd->nkd", from_edges(mask, values), x.view(len(x), values.shape[1], -1)).flatten(1)
    return [out.detach(), *torch.autograd.grad(out, (values, x), grad)]


def product(csr: LocalCSR, values: Tensor, x: Tensor, grad: Tensor) -> list[Tensor]:
    """The result, and the gradients of values and X."""
    out = x.new_zeros(csr.num_rows, x.shape[1])
    edge_spmm_into(csr, values, x, out)
    return [out, edge_dots(csr, grad, x, values.shape[1]), edge_spmm_transposed(csr, transpose(csr), values, grad)]


@pytest.mark.sample(2)
def test_product(path: str, every_case: bool) -> None:
    heads, device = [*MORE_HEADS, *HEADS[3:]] if every_case else HEADS[:3], device_of(path)
    empty = [torch.ones(n, m, dtype=torch.bool) for n, m in SHAPES]
    for num_heads, depth, dtype, mask in [
        *((*case, block_for(path)) for case in heads),
        *((*HEADS[0], mask_of_ones) for mask_of_ones in empty),
    ]:
        (n, m), csr, width = mask.shape, local_csr(mask.to(device)), num_heads * depth
        values, x, grad = normal(csr.nnz, num_heads, seed=0), normal(m, width, seed=1), normal(n, width, seed=2)
        expected = dense_product(mask, values, x, grad) if m else [torch.zeros_like(like) for like in (grad, values, x)]
        frame = torch.full((m, width + 3), torch.nan, dtype=dtype, device=device)  # the rows of X lie in it
        frame[:, 1 : 1 + width] = x
        results = product(csr, values.to(device, dtype), frame[:, 1 : 1 + width], grad.to(device, dtype))
        check(results, expected, dtype)


def test_stages_are_added(path: str) -> None:
    mask, device = block_for(path), device_of(path)
    n, m = mask.shape
    values, x = normal(n, m, 8, seed=0), normal(m, 64, seed=1)
    expected = torch.einsum("nmk,mkd->nkd", values * mask[:, :, None], x.view(m, 8, 8)).flatten(1)
    out = torch.zeros(n, 64, device=device)
    for part in (slice(15, m), slice(0, 15)):
        of_edges = values[:, part][mask[:, part]].float().to(device)
        edge_spmm_into(local_csr(mask[:, part].to(device)), of_edges, x[part].float().to(device), out)
    check([out], [expected], FLOAT32)


def test_a_long_sum_is_exact_to_working_precision() -> None:
    """Equal addends, whose roundings all go the same way."""
    csr = local_csr(torch.ones(1, 100_000, dtype=torch.bool))
    values, x, out = torch.ones(csr.nnz, 1), torch.full((csr.nnz, 2), 0.7), torch.zeros(1, 2)
    edge_spmm_into(csr, values, x, out)
    exact = x.double().sum(0)
    assert ((out[0].double() - exact).abs() <= 2e-6 * exact).all()


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rows_cpu, "MIN_SHARED_EDGES", 1)
    csr = local_csr(pattern(200, 150))
    results = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        values, x, grad = normal(csr.nnz, 8, seed=0), normal(150, 64, seed=1), normal(200, 64, seed=2)
        results.append(product(csr, values.float(), x.float(), grad.float()))
    assert all(torch.equal(a, b) for a, b in zip(*results))
