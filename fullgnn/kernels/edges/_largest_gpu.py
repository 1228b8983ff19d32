"""The largest rows of a stage on a GPU, for ``largest.py``. Importing this module imports Triton.

The programs are those of ``_reduce_gpu.py``: one of them processes the edges of a row, a target or a source, for some
columns, and its lanes are joined in the same order always.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from collections.abc import Callable

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.edges._reduce_gpu import NO_WINNER, largest_neighbours, shape_of, tile_of_row
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.spmm.reading import VECTOR_BYTES
from fullgnn.kernels.support.gpu import in_vectors, vector_unit


def largest_rows(csr: LocalCSR, x: Tensor, source_id: Tensor, state: MaxState) -> None:
    """See :func:`fullgnn.kernels.edges.largest.largest_rows`; the rows of ``x`` are contiguous."""
    width, x = x.shape[1], in_vectors(x)
    grid, shape = shape_of(csr.num_rows, csr.nnz, width, vector_unit(x, width))
    vector = VECTOR_BYTES // x.element_size()
    sizes = (width // shape["UNIT"], x.stride(0) // vector)
    edges = (csr.indptr, csr.indices, csr.values, source_id)
    largest_neighbours[grid](*edges, x, state.value, state.winner, *sizes, VECTOR=vector, MESSAGES=False, **shape)


def largest_rows_backward(
    csr: LocalCSR, transposed: Callable[[], Transposed], source_id: Tensor, winner: Tensor, grad: Tensor
) -> Tensor:
    """See :func:`fullgnn.kernels.edges.largest.largest_rows_backward`; the tensors are contiguous."""
    by_source, num_sources, width = transposed(), csr.num_cols, grad.shape[1]
    out = grad.new_empty(num_sources, width)
    grid, shape = shape_of(num_sources, csr.nnz, width, vector_unit(grad, width))
    edges = (by_source.indptr, by_source.indices, by_source.values, source_id)
    gradients_of_winners[grid](*edges, winner, grad, out, width // shape["UNIT"], **shape)
    return out


@triton.jit
def gradients_of_winners(
    indptr,  # (m + 1,) int32
    targets,  # (E,) int32
    edge_weight,  # (E,); None: all 1
    source_id,  # (m,) int64
    winner,  # (n, F) int64
    grad,  # (n, F)
    out,  # (m, F)
    width,  # F, in units of UNIT
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
):
    """Write the gradient of the row of a source: the sum of those of the targets' columns that it has won, weighted."""
    width *= UNIT
    row, edge, last, column, within = tile_of_row(indptr, width, EDGES, COLUMNS)
    own = tl.load(source_id + row)
    lane_sum = tl.zeros((EDGES, COLUMNS), grad.dtype.element_ty)
    for _ in range(tl.load(indptr + row), last, EDGES):
        here = (edge < last)[:, None] & within[None, :]
        target = tl.load(targets + edge, mask=edge < last, other=0).to(tl.int64)
        place = (target * width)[:, None] + column[None, :]
        won = tl.load(winner + place, mask=here, other=NO_WINNER) == own
        of_edge = tl.load(grad + place, mask=here & won, other=0)
        if edge_weight is not None:
            of_edge *= tl.load(edge_weight + edge, mask=edge < last, other=0)[:, None]
        lane_sum += of_edge
        edge += EDGES
    tl.store(out + row * width + column, tl.sum(lane_sum, 0), mask=within)
