"""Products with values per edge that are given at run time, for one stage of edges, outside autograd."""

import torch
from torch import Tensor

from fullgnn.kernels.edges.index import Transposed, edge_targets
from fullgnn.kernels.edges.paths import path_of
from fullgnn.kernels.edges.reference import edge_dots_torch, weighted_sum_torch
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import as_rows

NO_PLACES = torch.empty(0, dtype=torch.int32)


def edge_spmm_into(csr: LocalCSR, values: Tensor, x: Tensor, out: Tensor) -> None:
    """Add to each target's row the sum over its edges e of ``values[e] * x[source of e]``, head by head.

    Shapes are local to the stage: n targets, m sources, E edges, K heads of D columns.

    Args:
        csr: (n, m); its own values are not read.
        values: (E, K), in the order of the edges of ``csr``, of the dtype of ``x``.
        x: (m, K * D) float32 or float64, any row stride.
        out: (n, K * D), contiguous.
    """
    assert len(x) == csr.num_cols and out.shape == (csr.num_rows, x.shape[1]), (x.shape, out.shape)
    if path_of(x) == "torch":
        weighted_sum_torch(edge_targets(csr), csr.indices, values, x, out)
    else:
        _weighted_sum(csr, csr.indices, None, values, x, out)


def edge_spmm_transposed(csr: LocalCSR, transposed: Transposed, values: Tensor, grad: Tensor) -> Tensor:
    """(m, K * D) gradient of ``x`` in ``edge_spmm_into``, for the (n, K * D) gradient ``grad`` of its result."""
    out = grad.new_zeros(csr.num_cols, grad.shape[1])
    if path_of(grad) == "torch":
        weighted_sum_torch(csr.indices, edge_targets(csr), values, grad, out)
    else:
        _weighted_sum(transposed, transposed.targets, transposed.places, values, grad, out)
    return out


def _weighted_sum(
    edges: LocalCSR | Transposed, indices: Tensor, places: Tensor | None, values: Tensor, x: Tensor, out: Tensor
) -> None:
    """Add to row i of ``out`` the rows ``indices[e]`` of ``x``, weighted by ``values[places[e]]``, for its edges e."""
    num_edges, num_heads = values.shape
    assert num_edges == len(indices) and values.dtype == x.dtype == out.dtype, (values.shape, values.dtype, x.dtype)
    assert out.is_contiguous() and x.shape[1] % num_heads == 0, (x.shape, num_heads)
    if num_edges == 0:
        return
    x, values = as_rows(x), values.contiguous()
    if path_of(x) == "triton":
        from fullgnn.kernels.edges._weighted_gpu import weighted_sum_gpu

        weighted_sum_gpu(edges, indices, places, values, x, out)
        return
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._rows_cpu import over_rows
    from fullgnn.kernels.edges._weighted_cpu import weighted_sum_loop

    size, moved = x.element_size(), NO_PLACES if places is None else places
    loop = weighted_sum_loop(8 * size, num_heads, x.shape[1] // num_heads)
    over_rows(loop, edges.indptr, indices, moved.numpy(), values, x, x.stride(0) * size, out)


def edge_dots(csr: LocalCSR, of_targets: Tensor, of_sources: Tensor, num_heads: int) -> Tensor:
    """(E, K) dot products of the rows of each edge's target and source, head by head (SDDMM): the gradient of
    ``values`` in ``edge_spmm_into``, where the targets' rows are that of its result.

    Args:
        of_targets: (n, K * D).
        of_sources: (m, K * D), any row stride.
    """
    assert len(of_targets) == csr.num_rows and len(of_sources) == csr.num_cols
    if path_of(of_sources) == "torch":
        return edge_dots_torch(edge_targets(csr), csr.indices, of_targets, of_sources, num_heads)
    out = of_sources.new_empty(csr.nnz, num_heads)
    rows, x, size = of_targets.contiguous(), as_rows(of_sources), of_sources.element_size()
    if csr.nnz == 0:
        return out
    if path_of(x) == "triton":
        from fullgnn.kernels.edges._weighted_gpu import edge_dots_gpu

        edge_dots_gpu(csr, rows, x, out)
        return out
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.kernels.edges._rows_cpu import over_rows
    from fullgnn.kernels.edges._weighted_cpu import edge_dots_loop

    loop = edge_dots_loop(8 * size, num_heads, x.shape[1] // num_heads)
    over_rows(loop, csr.indptr, csr.indices, rows, x, x.stride(0) * size, out)
    return out
