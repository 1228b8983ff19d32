"""Dense groups of columns of a panel of rows on tensor cores, for ``packed.py``. Importing this module imports Triton.

One program multiplies the groups of one panel, or a stretch of them. A group is 32 rows of X, read once for the whole
panel, and the panel's pattern in them: a word for each row, with a bit for each column. The pattern is exactly 0 and 1
in any precision, so only X needs care: as hi + mid + lo in bfloat16 it keeps all 24 bits of float32.
"""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl

from fullgnn.kernels._epilogue_gpu import store_rows

GROUP = tl.constexpr(32)


@triton.jit(
    do_not_specialize=["num_rows", "num_cols", "first_column", "width", "readable", "x_stride", "out_stride"],
)
def multiply_panels(
    begin,  # (num_items,) int32: the groups of an item are begin to end
    end,
    target,  # (num_items,) int32: the panel of ``out`` that it is stored to
    columns,  # (num_groups, 32) int32 rows of X, or (num_groups,) the first of 32 in a row
    bits,  # (num_groups, PANEL) int32
    x,  # (num_cols, width)
    out,  # (num_rows, width)
    num_rows,
    num_cols,  # columns from here on are none
    first_column,  # of the first program along the grid's slow axis
    width,
    readable,  # columns of X that there is memory for
    x_stride,
    out_stride,
    PANEL: tl.constexpr,
    PIECE_0: tl.constexpr,
    PIECE_1: tl.constexpr,  # 0: there is none
    PIECE_2: tl.constexpr,
    ALIGNED: tl.constexpr,  # elements that x_stride and readable are multiples of
    EVEN: tl.constexpr,  # all columns of the pieces are readable
    ADJACENT: tl.constexpr,  # the columns of a group are 32 in a row
    MODE: tl.constexpr,
    WIDE: tl.constexpr,  # offsets pass 2^31
    ACCUMULATE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    item = tl.program_id(0)
    k = tl.arange(0, GROUP)
    r = tl.arange(0, PANEL)
    zero = tl.full((), 0, tl.int64)  # what is added to it has 64 bits
    readable = tl.multiple_of(readable, ALIGNED)
    first_column = tl.multiple_of(first_column + tl.program_id(1) * (PIECE_0 + PIECE_1 + PIECE_2), 8)
    sum_0 = tl.zeros((PANEL, PIECE_0), tl.float32)
    if PIECE_1:
        sum_1 = tl.zeros((PANEL, PIECE_1), tl.float32)
    if PIECE_2:
        sum_2 = tl.zeros((PANEL, PIECE_2), tl.float32)

    for group in range(tl.load(begin + item), tl.load(end + item)):
        source = tl.load(columns + group) + k if ADJACENT else tl.load(columns + (k * zero + group) * GROUP + k)
        word = tl.load(bits + (r * zero + group) * PANEL + r)
        pattern = (word[:, None] >> k[None, :]) & 1
        here = source < num_cols
        offset = source.to(tl.int64) * x_stride if WIDE else source * x_stride
        row = x + tl.multiple_of(offset, ALIGNED)
        sum_0 = _add(sum_0, pattern, row, first_column, here, readable, EVEN, MODE, INTERPRETED)
        if PIECE_1:
            sum_1 = _add(sum_1, pattern, row, first_column + PIECE_0, here, readable, EVEN, MODE, INTERPRETED)
        if PIECE_2:
            second = first_column + PIECE_0 + PIECE_1
            sum_2 = _add(sum_2, pattern, row, second, here, readable, EVEN, MODE, INTERPRETED)

    stored = tl.load(target + item) * PANEL + r
    store_rows(sum_0, stored, num_rows, first_column, width, out, out_stride, None, None, False,
               None, None, 0, 0, 0, 1.0, ACCUMULATE, WIDE)  # fmt: skip
    if PIECE_1:
        store_rows(sum_1, stored, num_rows, first_column + PIECE_0, width, out, out_stride, None, None, False,
                   None, None, 0, 0, 0, 1.0, ACCUMULATE, WIDE)  # fmt: skip
    if PIECE_2:
        store_rows(sum_2, stored, num_rows, first_column + PIECE_0 + PIECE_1, width, out, out_stride, None, None,
                   False, None, None, 0, 0, 0, 1.0, ACCUMULATE, WIDE)  # fmt: skip


@triton.jit
def _add(
    total,
    pattern,
    row,
    first_column,
    here,
    readable,
    EVEN: tl.constexpr,
    MODE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """``total`` + ``pattern`` X in one of the modes."""
    column = first_column + tl.arange(0, total.shape[1])
    within = here[:, None] if EVEN else here[:, None] & (column < readable)[None, :]
    part = tl.load(row[:, None] + column[None, :], mask=within, other=0)
    if MODE == "ieee":
        return tl.dot(pattern.to(tl.float32), part, total, input_precision="ieee")
    if MODE == "bf16x3":
        hi = _cut_off(part)
        part -= hi
        mid = _cut_off(part)
        total = _dot(pattern, hi.to(tl.bfloat16), total, INTERPRETED)
        total = _dot(pattern, mid.to(tl.bfloat16), total, INTERPRETED)
        return _dot(pattern, (part - mid).to(tl.bfloat16), total, INTERPRETED)
    hi = part.to(tl.bfloat16)
    total = _dot(pattern, hi, total, INTERPRETED)
    if MODE == "bf16x2":
        total = _dot(pattern, (part - hi.to(tl.float32)).to(tl.bfloat16), total, INTERPRETED)
    return total


@triton.jit
def _cut_off(x):
    """Float32 ``x`` without the 16 bits that bfloat16 has no place for: rounding could overflow, and the interpreter
    does not round."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _dot(pattern, part, total, INTERPRETED: tl.constexpr):
    if INTERPRETED:  # there, a product of bfloat16 matrices is wrong
        return tl.dot(pattern.to(tl.float32), part.to(tl.float32), total, input_precision="ieee")
    return tl.dot(pattern.to(tl.bfloat16), part, total)


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """What is compiled: (kernel, signature, constants, options) of representative calls."""
    signature = dict.fromkeys(("begin", "end", "target", "columns", "bits"), "*i32:16")
    sizes = ("num_rows", "num_cols", "first_column", "width", "readable", "x_stride", "out_stride")
    signature |= dict.fromkeys(sizes, "i32") | {"out": "*fp32:16"}
    calls = [  # rows of a panel, pieces, mode, adjacent columns, wide
        (32, (128, 0, 0), "bf16x3", True, False),
        (32, (32, 16, 0), "bf16x3", False, False),
        (64, (128, 0, 0), "bf16x3", False, False),
        (64, (128, 0, 0), "bf16x2", False, False),
        (64, (32, 16, 0), "bf16", False, True),
        (64, (32, 16, 0), "ieee", False, False),
        (128, (128, 0, 0), "bf16x3", False, False),
        (128, (128, 0, 0), "bf16", False, False),
    ]
    for panel, pieces, mode, adjacent, wide in calls:
        types = {"x": "*bf16:16" if mode == "bf16" else "*fp32:16"}
        constants: dict[str, Any] = dict(zip(("PIECE_0", "PIECE_1", "PIECE_2"), pieces))
        constants |= dict(PANEL=panel, ADJACENT=adjacent, MODE=mode, EVEN=True, WIDE=wide, ACCUMULATE=False)
        constants |= dict(ALIGNED=8 if mode == "bf16" else 4, INTERPRETED=False)
        yield multiply_panels, signature | types, constants, {"num_warps": 8 if panel == 128 else 4, "num_stages": 3}
