"""Reductions of messages on a GPU, for ``reduce.py``. Importing this module imports Triton.

A program reduces the edges of a row for up to ``COLUMNS`` columns:

    lanes (EDGES)    each takes every EDGES-th edge
    at the end       the lanes are joined, always in the same order
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.edges.max_state import NO_WINNER as NO_ID
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.gpu import vector_unit

COLUMNS = 64
ELEMENTS = 1024  # numbers of a program's tile
NO_WINNER = tl.constexpr(NO_ID)


def add_messages(csr: LocalCSR, messages: Tensor, out: Tensor) -> None:
    """Add the sums of the contiguous (E, F) ``messages`` to the contiguous (n, F) ``out``."""
    grid, shape = _shape_of(csr, messages)
    sum_messages[grid](csr.indptr, messages, out, messages.shape[1] // shape["UNIT"], **shape)


def add_largest(csr: LocalCSR, messages: Tensor, source_id: Tensor, state: MaxState) -> None:
    """See :func:`fullgnn.kernels.edges.reduce.add_largest`; the tensors are contiguous."""
    grid, shape = _shape_of(csr, messages)
    edges, width = (csr.indptr, csr.indices, None, source_id), messages.shape[1] // shape["UNIT"]
    states = (state.value, state.winner)
    largest_neighbours[grid](*edges, messages, *states, width, width, VECTOR=shape["UNIT"], MESSAGES=True, **shape)


def largest_backward(csr: LocalCSR, source_id: Tensor, winner: Tensor, grad: Tensor, out: Tensor) -> None:
    """See :func:`fullgnn.kernels.edges.reduce.largest_backward`; the tensors are contiguous."""
    grid, shape = _shape_of(csr, grad)
    edges = (csr.indptr, csr.indices, source_id)
    largest_gradients[grid](*edges, winner, grad, out, grad.shape[1] // shape["UNIT"], **shape)


def shape_of(num_rows: int, num_edges: int, width: int, unit: int) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid, and the compile-time constants of a program's shape, for rows of ``width`` columns."""
    columns = min(COLUMNS, triton.next_power_of_2(width))
    edges = min(ELEMENTS // columns, triton.next_power_of_2(-(-num_edges // max(1, num_rows)) or 1))
    return (num_rows, triton.cdiv(width, columns)), {"EDGES": edges, "COLUMNS": columns, "UNIT": unit}


def _shape_of(csr: LocalCSR, x: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    return shape_of(csr.num_rows, csr.nnz, x.shape[1], vector_unit(x, x.shape[1]))


@triton.jit
def tile_of_row(indptr, width, EDGES: tl.constexpr, COLUMNS: tl.constexpr):
    """The row, its lanes' first edges [EDGES], the end of its edges, the columns [COLUMNS] and where they exist."""
    row = tl.program_id(0).to(tl.int64)
    edge = tl.load(indptr + row) + tl.arange(0, EDGES)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    return row, edge, tl.load(indptr + row + 1), column, column < width


@triton.jit
def sum_messages(
    indptr,  # (n + 1,) int32
    messages,  # (E, F)
    out,  # (n, F)
    width,  # F, in units of UNIT
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
):
    """Add the sum of the messages of a row to ``out``."""
    width *= UNIT
    row, edge, last, column, within = tile_of_row(indptr, width, EDGES, COLUMNS)
    lane_sum = tl.zeros((EDGES, COLUMNS), messages.dtype.element_ty)
    for _ in range(tl.load(indptr + row), last, EDGES):
        place = messages + (edge.to(tl.int64) * width)[:, None] + column[None, :]
        lane_sum += tl.load(place, mask=(edge < last)[:, None] & within[None, :], other=0)
        edge += EDGES
    place = out + row * width + column
    tl.store(place, tl.load(place, mask=within, other=0) + tl.sum(lane_sum, 0), mask=within)


@triton.jit
def wins(value, sender, top, winner):
    """Whether a message beats the best one so far: it is larger, or nan, or as large and from a lower id."""
    larger = (value > top) | ((value != value) & (top == top))
    return larger | (((value == top) | ((value != value) & (top != top))) & (sender < winner))


@triton.jit
def best_of(value, sender, top, winner):
    """The better of two messages and its sender."""
    better = wins(value, sender, top, winner)
    return tl.where(better, value, top), tl.where(better, sender, winner)


@triton.jit
def update_state(value, winner, place, within, top, sender):
    """Update the state of a row by the best messages of its lanes, [EDGES, COLUMNS], and their senders.

    Args:
        place: [COLUMNS] of the row's numbers in ``value`` and ``winner``.
    """
    best, best_sender = tl.reduce((top, sender), 0, best_of)
    before = tl.load(value + place, mask=within, other=0)
    best, best_sender = best_of(best, best_sender, before, tl.load(winner + place, mask=within, other=0))
    tl.store(value + place, best, mask=within)
    tl.store(winner + place, best_sender, mask=within)


@triton.jit
def largest_neighbours(
    indptr,  # (n + 1,) int32
    indices,  # (E,) int32
    edge_weight,  # (E,); None: all 1
    source_id,  # (m,) int64
    x,  # (m, F); with MESSAGES, (E, F)
    value,  # (n, F)
    winner,  # (n, F) int64
    width,  # F, in units of UNIT
    x_stride,  # in units of VECTOR
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    VECTOR: tl.constexpr,  # numbers that are read at once
    MESSAGES: tl.constexpr,  # x has a row for each edge, not for each source
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
        row_of_x = edge if MESSAGES else source
        place = x + (row_of_x.to(tl.int64) * stride)[:, None] + column[None, :]
        number = tl.load(place, mask=here[:, None] & read[None, :], other=float("-inf"))
        if edge_weight is not None:
            number *= tl.load(edge_weight + edge, mask=here, other=1)[:, None]
        top, sender = best_of(number, tl.broadcast_to(of_edge, (EDGES, COLUMNS)), top, sender)
        edge += EDGES
    update_state(value, winner, row * width + column, within, top, sender)


@triton.jit
def largest_gradients(
    indptr,  # (n + 1,) int32
    indices,  # (E,) int32
    source_id,  # (m,) int64
    winner,  # (n, F) int64
    grad,  # (n, F)
    out,  # (E, F)
    width,  # F, in units of UNIT
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
):
    """Write the gradients of a row's messages: that of the row where the message won, else 0."""
    width *= UNIT
    row, edge, last, column, within = tile_of_row(indptr, width, EDGES, COLUMNS)
    of_row = tl.load(grad + row * width + column, mask=within, other=0)[None, :]
    best = tl.load(winner + row * width + column, mask=within, other=0)[None, :]
    for _ in range(tl.load(indptr + row), last, EDGES):
        here = edge < last
        source = tl.load(indices + edge, mask=here, other=0).to(tl.int64)
        of_edge = tl.load(source_id + source, mask=here, other=NO_WINNER)[:, None]
        place = out + (edge.to(tl.int64) * width)[:, None] + column[None, :]
        tl.store(place, tl.where(best == of_edge, of_row, 0.0), mask=here[:, None] & within[None, :])
        edge += EDGES
