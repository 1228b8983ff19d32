"""The largest rows of a stage on a GPU, for ``largest.py``. Importing this module imports Triton.

The programs are those of ``_reduce_gpu.py``: one of them processes the edges of a row, a target or a source, for some
columns, and its lanes are joined in the same order always.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.edges._reduce_gpu import NO_WINNER, best_of, shape_of, tile_of_row, update_state
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.spmm.reading import VECTOR_BYTES
from fullgnn.kernels.support.gpu import in_vectors, vector_unit


def largest_rows_gpu(csr: LocalCSR, x: Tensor, source_id: Tensor, state: MaxState) -> None:
    """See :func:`fullgnn.kernels.edges.largest.largest_rows`; the rows of ``x`` are contiguous."""
    width, x = x.shape[1], in_vectors(x)
    grid, shape = shape_of(csr.num_rows, csr.nnz, width, vector_unit(x, width))
    vector = VECTOR_BYTES // x.element_size()
    sizes = (width // shape["UNIT"], x.stride(0) // vector)
    edges = (csr.indptr, csr.indices, csr.values, source_id)
    largest_neighbours[grid](*edges, x, state.value, state.winner, *sizes, VECTOR=vector, **shape)


def largest_rows_backward_gpu(transposed: Transposed, source_id: Tensor, winner: Tensor, grad: Tensor) -> Tensor:
    """See :func:`fullgnn.kernels.edges.largest.largest_rows_backward`; the tensors are contiguous."""
    num_sources, width = transposed.num_sources, grad.shape[1]
    out = grad.new_empty(num_sources, width)
    grid, shape = shape_of(num_sources, len(transposed.targets), width, vector_unit(grad, width))
    edges = (transposed.indptr, transposed.targets, transposed.values, source_id)
    gradients_of_winners[grid](*edges, winner, grad, out, width // shape["UNIT"], **shape)
    return out


@triton.jit
def largest_neighbours(
    indptr,  # (n + 1,) int32
    indices,  # (E,) int32
    edge_weight,  # (E,); None: all 1
    source_id,  # (m,) int64
    x,  # (m, F)
    value,  # (n, F)
    winner,  # (n, F) int64
    width,  # F, in units of UNIT
    x_stride,  # in units of VECTOR
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    VECTOR: tl.constexpr,  # numbers in 16 bytes
):
    """Update the state of a target. Rows of X are read in whole vectors, and so past their last column."""
    width *= UNIT
    stride = tl.cast(x_stride, tl.int64) * VECTOR
    row, edge, last, column, within = tile_of_row(indptr, width, EDGES, COLUMNS)
    read = column // VECTOR * VECTOR < width
    top = tl.full((EDGES, COLUMNS), float("-inf"), x.dtype.element_ty)
    sender = tl.full((EDGES, COLUMNS), NO_WINNER, tl.int64)
    for _ in range(tl.load(indptr + row), last, EDGES):
        here = edge < last
        source = tl.load(indices + edge, mask=here, other=0)
        of_edge = tl.load(source_id + source, mask=here, other=NO_WINNER)[:, None]
        place = x + (source.to(tl.int64) * stride)[:, None] + column[None, :]
        number = tl.load(place, mask=here[:, None] & read[None, :], other=float("-inf"))
        if edge_weight is not None:
            number *= tl.load(edge_weight + edge, mask=here, other=1)[:, None]
        top, sender = best_of(number, tl.broadcast_to(of_edge, (EDGES, COLUMNS)), top, sender)
        edge += EDGES
    update_state(value, winner, row * width + column, within, top, sender)


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
