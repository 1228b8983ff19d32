"""Products with values per edge that are given at run time, for one stage of edges, outside autograd."""

from torch import Tensor

from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.paths import implementation
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import as_rows


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
    _weighted_sum(csr, None, values, x, out)


def edge_spmm_transposed(csr: LocalCSR, transposed: Transposed, values: Tensor, grad: Tensor) -> Tensor:
    """(m, K * D) gradient of ``x`` in ``edge_spmm_into``, for the (n, K * D) gradient ``grad`` of its result."""
    out = grad.new_zeros(csr.num_cols, grad.shape[1])
    _weighted_sum(transposed, transposed.places, values, grad, out)
    return out


def _weighted_sum(edges: LocalCSR, places: Tensor | None, values: Tensor, x: Tensor, out: Tensor) -> None:
    """Add to row i of ``out`` the rows ``indices[e]`` of ``x``, weighted by ``values[places[e]]``, for its edges e.
    None: ``places[e]`` is e."""
    num_edges, num_heads = values.shape
    assert num_edges == edges.nnz and values.dtype == x.dtype == out.dtype, (values.shape, values.dtype, x.dtype)
    assert out.is_contiguous() and x.shape[1] % num_heads == 0, (x.shape, num_heads)
    if num_edges:
        implementation("weighted", x).add_weighted(edges, places, values.contiguous(), as_rows(x), out)


def edge_dots(csr: LocalCSR, of_targets: Tensor, of_sources: Tensor, num_heads: int) -> Tensor:
    """(E, K) dot products of the rows of each edge's target and source, head by head (SDDMM): the gradient of
    ``values`` in ``edge_spmm_into``, where the targets' rows are that of its result.

    Args:
        of_targets: (n, K * D).
        of_sources: (m, K * D), any row stride.
    """
    assert len(of_targets) == csr.num_rows and len(of_sources) == csr.num_cols
    out = of_sources.new_empty(csr.nnz, num_heads)
    if csr.nnz:
        implementation("weighted", out).write_dots(csr, of_targets.contiguous(), as_rows(of_sources), out)
    return out
