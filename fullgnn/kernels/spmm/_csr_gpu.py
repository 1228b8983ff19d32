"""Rows of A @ X on a GPU, for ``triton_csr.py``. Importing this module imports Triton.

One program sums the edges of a few items, each a row or a part of a row, for a few columns of X:

    lanes (ROWS x EDGES)    each adds every EDGES-th edge of one of ROWS items, so that many rows of X load at once
    at the end              the lanes of an item are added, always in the same order, and the item is stored

Columns are cut into up to three pieces of a power of two each, since Triton's blocks have such sizes: 48 is 32 + 16 and
not a masked 64. The number of the item is the grid's fast axis: programs that run at one time read the same columns of
X, and rows near each other read rows of X near each other.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import triton
import triton.language as tl

from fullgnn.kernels.epilogue._epilogue_gpu import store_rows
from fullgnn.kernels.spmm.reading import CHAIN

MAX_CHAIN = tl.constexpr(CHAIN)


@triton.jit(
    do_not_specialize=["num_items", "num_rows", "first_column", "width", "readable", "x_stride", "out_stride"],
)
def sum_rows(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    target,  # (num_items,) int32: the row of ``out`` to which an item is stored
    indices,  # (nnz,) int32 columns of A
    values,  # (nnz,) of the dtype of ``out``; None: all 1
    x,  # (num_cols, width)
    out,  # (num_rows, width)
    num_items,
    num_rows,
    first_column,  # first column of the first program along the grid's slow axis
    width,  # in units of OUT_ALIGNED, as out_stride is
    readable,  # columns of X that there is memory for, in units of ALIGNED, as x_stride is
    x_stride,
    out_stride,
    scale,  # from here to drop_scale: see store_rows
    bias,
    relu: tl.constexpr,
    node_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
    ACCUMULATE: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    PIECE_0: tl.constexpr,
    PIECE_1: tl.constexpr,  # 0: there is none
    PIECE_2: tl.constexpr,
    ALIGNED: tl.constexpr,  # elements of X; see ``Reading``
    OUT_ALIGNED: tl.constexpr,
    EVEN: tl.constexpr,  # all columns of the pieces are readable
    WIDE: tl.constexpr,  # offsets pass 2^31
):
    LANES: tl.constexpr = ROWS * EDGES
    item = tl.program_id(0) * ROWS + tl.arange(0, LANES) // EDGES
    there = item < num_items
    edge = tl.load(begin + item, mask=there, other=0) + tl.arange(0, LANES) % EDGES
    last = tl.load(end + item, mask=there, other=0)
    longest = tl.max(last - edge)

    readable *= ALIGNED
    x_stride *= ALIGNED
    width *= OUT_ALIGNED
    out_stride *= OUT_ALIGNED
    first_column = tl.multiple_of(first_column + tl.program_id(1) * (PIECE_0 + PIECE_1 + PIECE_2), 8)
    sum_0 = tl.zeros((LANES, PIECE_0), out.dtype.element_ty)
    if PIECE_1:
        sum_1 = tl.zeros((LANES, PIECE_1), out.dtype.element_ty)
    if PIECE_2:
        sum_2 = tl.zeros((LANES, PIECE_2), out.dtype.element_ty)

    source = tl.load(indices + edge, mask=edge < last, other=0)
    for _ in range(0, longest, EDGES):
        here = edge < last
        # The next indices are loaded before these rows; otherwise each step would wait twice.
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0)
        offset = source.to(tl.int64) * x_stride if WIDE else source * x_stride
        row = x + offset
        value = tl.load(values + edge, mask=here, other=0) if values is not None else None
        sum_0 = _add(sum_0, row, first_column, here, readable, value, EVEN)
        if PIECE_1:
            sum_1 = _add(sum_1, row, first_column + PIECE_0, here, readable, value, EVEN)
        if PIECE_2:
            sum_2 = _add(sum_2, row, first_column + PIECE_0 + PIECE_1, here, readable, value, EVEN)
        edge += EDGES
        source = ahead

    item = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    stored = tl.load(target + item, mask=item < num_items, other=num_rows)
    epilogue = (scale, bias, relu, (node_id, epoch, seed, layer, threshold, drop_scale))
    total = add_lanes(tl.reshape(sum_0, (ROWS, EDGES, PIECE_0)))
    store_rows(total, stored, num_rows, first_column, width, out, out_stride, epilogue, ACCUMULATE, WIDE)
    if PIECE_1:
        total = add_lanes(tl.reshape(sum_1, (ROWS, EDGES, PIECE_1)))
        store_rows(total, stored, num_rows, first_column + PIECE_0, width, out, out_stride, epilogue, ACCUMULATE, WIDE)
    if PIECE_2:
        total = add_lanes(tl.reshape(sum_2, (ROWS, EDGES, PIECE_2)))
        third = first_column + PIECE_0 + PIECE_1
        store_rows(total, stored, num_rows, third, width, out, out_stride, epilogue, ACCUMULATE, WIDE)


@triton.jit
def _add(total, row, first_column, here, readable, value, EVEN: tl.constexpr):
    """``total`` plus, for each lane in ``here``, the columns of its ``row`` of X, times its ``value``."""
    column = first_column + tl.arange(0, total.shape[1])
    within = here[:, None] if EVEN else here[:, None] & (column < readable)[None, :]
    part = tl.load(row[:, None] + column[None, :], mask=within, other=0).to(total.dtype)  # of X
    return total + (part * value[:, None] if value is not None else part)


@triton.jit
def add_lanes(sums):
    """The [ROWS, COLUMNS] sums of [ROWS, EDGES, COLUMNS] ``sums`` over the lanes of each item.

    The sum has two steps, so that at most ``MAX_CHAIN`` numbers are added one after the other.
    """
    ROWS: tl.constexpr = sums.shape[0]
    EDGES: tl.constexpr = sums.shape[1]
    if EDGES > MAX_CHAIN:
        split = tl.reshape(sums, (ROWS, EDGES // MAX_CHAIN, MAX_CHAIN, sums.shape[2]))
        total = tl.sum(tl.sum(split, axis=1), axis=1)
    else:
        total = tl.sum(sums, axis=1)
    return total
