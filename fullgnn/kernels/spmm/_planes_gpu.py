"""Panels of 32 rows on tensor cores, for ``panel_plan.py``. Importing this module imports Triton.

One program multiplies the groups of one panel, or a stretch of them. A group is 32 rows of X, read once for the whole
panel, and the panel's pattern in these columns of A: a word for each row, with a bit for each column. The pattern is
exactly 0 and 1 in any precision, so only X needs care: as hi + mid + lo in bfloat16, X keeps all 24 bits of float32.

A kernel of its own splits X, once per product, and writes the planes of a row side by side, padded to 16 columns:

    hi of row 0 | mid of row 0 | lo of row 0 | hi of row 1 | ...        6 bytes a number

so that 16 bytes at a time go from global to shared memory and on to the tensor cores, not through registers. The
pattern of the next group is unpacked one group ahead and carried into the next iteration.

Tensor cores may truncate a sum instead of rounding it. So a sum on tensor cores, a chain, is only a few groups long and
is then added to another sum in float32.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.epilogue._epilogue_gpu import store_rows
from fullgnn.kernels.spmm import tiles
from fullgnn.kernels.spmm.panel_plan import UNIT
from fullgnn.kernels.spmm.reading import Reading

GROUP, PANEL = tl.constexpr(tiles.GROUP), tl.constexpr(tiles.PANEL)
MAX_COLUMNS, ELEMENTS = 64, 2048  # bounds of one program's tile in ``_split``


def split_rows(x: Tensor) -> Tensor:
    """(n, 3, padded width) bfloat16 whose planes add up to the (n, width) float32 ``x``; padding is undefined."""
    padded = -(-x.shape[1] // UNIT) * UNIT
    planes = torch.empty(len(x), 3, padded, dtype=torch.bfloat16, device=x.device)
    if len(x):
        reading = Reading.of(x)
        columns = min(MAX_COLUMNS, triton.next_power_of_2(padded))
        rows = ELEMENTS // columns
        _split[(triton.cdiv(len(x), rows), triton.cdiv(padded, columns))](
            x,
            planes,
            len(x),
            padded // UNIT,
            reading.column_units,
            reading.stride_units,
            ALIGNED=reading.aligned,
            ROWS=rows,
            COLUMNS=columns,
        )
    return planes


@triton.jit(do_not_specialize=["num_rows", "plane", "readable", "x_stride"])
def _split(
    x,  # (num_rows, readable) float32
    planes,  # (num_rows, 3, plane) bfloat16
    num_rows,
    plane,  # columns of a plane, in units of 16
    readable,  # columns of X that there is memory for, in units of ALIGNED, as x_stride is
    x_stride,
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    plane *= 16
    readable *= ALIGNED
    x_stride *= ALIGNED
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there = row < num_rows
    at = x + (row * x_stride)[:, None] + column[None, :]
    part = tl.load(at, mask=there[:, None] & (column < readable)[None, :], other=0)  # of X
    within = there[:, None] & (column < plane)[None, :]
    to = planes + (row * (3 * plane))[:, None] + column[None, :]
    hi = truncate_to_bfloat16(part)
    part -= hi
    mid = truncate_to_bfloat16(part)
    tl.store(to, hi.to(tl.bfloat16), mask=within)
    tl.store(to + plane, mid.to(tl.bfloat16), mask=within)
    tl.store(to + 2 * plane, (part - mid).to(tl.bfloat16), mask=within)


@triton.jit
def truncate_to_bfloat16(x):
    """Float32 ``x`` without its low 16 bits, which bfloat16 does not have: rounding could overflow, and the interpreter
    does not round."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["num_rows", "num_cols", "first_column", "width", "out_stride", "plane"])
def multiply_planes(
    begin,  # (num_items,) int32: the groups of an item are begin to end
    end,
    target,  # (num_items,) int32: the panel of ``out`` to which an item is stored
    columns,  # (num_groups, 32) int32 rows of X, or (num_groups,) the first of 32 consecutive ones
    bits,  # (num_groups, PANEL) int32
    planes,  # (num_cols, 3, plane) bfloat16
    out,  # (num_rows, width)
    num_rows,
    num_cols,  # a column id from here on stands for no column
    first_column,  # first column of the first program along the grid's slow axis, in units of 16
    width,  # in units of OUT_ALIGNED, as out_stride is
    out_stride,
    plane,  # columns of a plane, in units of 16
    PIECE: tl.constexpr,
    EVEN: tl.constexpr,  # all columns of the piece are in a plane
    OUT_ALIGNED: tl.constexpr,
    ADJACENT: tl.constexpr,  # the columns of a group are 32 consecutive ones
    CHAIN: tl.constexpr,  # groups that are added up on tensor cores
    WIDE: tl.constexpr,  # offsets pass 2^31
    ACCUMULATE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    item = tl.program_id(0)
    k = tl.arange(0, GROUP)
    r = tl.arange(0, PANEL)
    zero = tl.full((), 0, tl.int64)  # a term with it makes an offset 64-bit
    plane *= 16
    width *= OUT_ALIGNED
    out_stride *= OUT_ALIGNED
    first_column = first_column * 16 + tl.program_id(1) * PIECE
    total = tl.zeros((PANEL, PIECE), tl.float32)
    chain = total

    first, last = tl.load(begin + item), tl.load(end + item)
    ahead = _pattern(bits, first, last, INTERPRETED)
    for group in range(first, last):
        source = tl.load(columns + group) + k if ADJACENT else tl.load(columns + (k * zero + group) * GROUP + k)
        pattern = ahead
        here = source < num_cols
        source = source.to(tl.int64) if WIDE else source
        row = planes + source * (plane * 3)
        chain = _add(chain, pattern, row, plane, first_column, here, EVEN, INTERPRETED)
        ahead = _pattern(bits, group + 1, last, INTERPRETED)
        if (group - first) % CHAIN == CHAIN - 1:
            total += chain
            chain = tl.zeros_like(total)

    stored = tl.load(target + item) * PANEL + r
    no_epilogue = (None, None, False, (None, None, 0, 0, 0, 1.0))
    store_rows(total + chain, stored, num_rows, first_column, width, out, out_stride, no_epilogue, ACCUMULATE, WIDE)


@triton.jit
def _pattern(bits, group, last, INTERPRETED: tl.constexpr):
    """[PANEL, 32] entries of a group as 0 and 1, or zeros from the group ``last`` on."""
    at = bits + (tl.arange(0, PANEL) + (tl.full((), 0, tl.int64) + group) * PANEL)
    pattern = (tl.load(at, mask=group < last, other=0)[:, None] >> tl.arange(0, GROUP)[None, :]) & 1
    return pattern.to(tl.float32) if INTERPRETED else pattern.to(tl.bfloat16)


@triton.jit
def _add(
    total,
    pattern,
    row,
    plane,
    first_column,
    here,
    EVEN: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """``total`` + ``pattern`` X; all planes are loaded before the products."""
    column = first_column + tl.arange(0, total.shape[1])
    at = row[:, None] + column[None, :]
    within = here[:, None] if EVEN else here[:, None] & (column < plane)[None, :]
    hi = tl.load(at, mask=within, other=0)  # of X
    mid = tl.load(at + plane, mask=within, other=0)  # of X
    lo = tl.load(at + 2 * plane, mask=within, other=0)  # of X
    total = _dot(pattern, hi, total, INTERPRETED)
    total = _dot(pattern, mid, total, INTERPRETED)
    return _dot(pattern, lo, total, INTERPRETED)


@triton.jit
def _dot(pattern, part, total, INTERPRETED: tl.constexpr):
    if INTERPRETED:  # Triton's interpreter multiplies bfloat16 matrices wrongly
        return tl.dot(pattern, part.to(tl.float32), total, input_precision="ieee")
    return tl.dot(pattern, part, total)
