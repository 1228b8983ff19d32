"""Dense groups of columns of a panel of rows on tensor cores, for ``packed.py``. Importing this module imports Triton.

One program multiplies the groups of one panel, or a stretch of them. A group is 32 rows of X, read once for the whole
panel, and the panel's pattern in these columns of A: a word for each row, with a bit for each column. The pattern is
exactly 0 and 1 in any precision, so only X needs care: as hi + mid + lo in bfloat16, X keeps all 24 bits of float32.

Tensor cores may truncate a sum instead of rounding it. So a sum on tensor cores, a chain, is only a few groups long and
is then added to another sum in float32.
"""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl

from fullgnn.kernels.epilogue._epilogue_gpu import store_rows
from fullgnn.kernels.spmm.panel_pieces import smallest_piece
from fullgnn.kernels.spmm.reading import split_columns
from fullgnn.kernels.support.tuning import PanelTuning

GROUP = tl.constexpr(32)


@triton.jit(
    do_not_specialize=["num_rows", "num_cols", "first_column", "width", "out_stride", "readable", "x_stride"],
)
def multiply_panels(
    begin,  # (num_items,) int32: the groups of an item are begin to end
    end,
    target,  # (num_items,) int32: the panel of ``out`` to which an item is stored
    columns,  # (num_groups, 32) int32 rows of X, or (num_groups,) the first of 32 consecutive ones
    bits,  # (num_groups, PANEL) int32
    x,  # (num_cols, width)
    out,  # (num_rows, width)
    num_rows,
    num_cols,  # a column id from here on stands for no column
    first_column,  # first column of the first program along the grid's slow axis, in units of 16
    width,  # in units of OUT_ALIGNED, as out_stride is
    out_stride,
    readable,  # columns of X that there is memory for, in units of ALIGNED, as x_stride is
    x_stride,
    PANEL: tl.constexpr,
    PIECE_0: tl.constexpr,
    PIECE_1: tl.constexpr,  # 0: there is none
    PIECE_2: tl.constexpr,
    ALIGNED: tl.constexpr,  # elements of X; see ``Reading``
    OUT_ALIGNED: tl.constexpr,
    EVEN: tl.constexpr,  # all columns of the pieces are readable
    ADJACENT: tl.constexpr,  # the columns of a group are 32 consecutive ones
    MODE: tl.constexpr,
    CHAIN: tl.constexpr,  # groups that are added up on tensor cores
    WIDE: tl.constexpr,  # offsets pass 2^31
    ACCUMULATE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    item = tl.program_id(0)
    k = tl.arange(0, GROUP)
    r = tl.arange(0, PANEL)
    zero = tl.full((), 0, tl.int64)  # a term with it makes an offset 64-bit
    readable *= ALIGNED
    x_stride *= ALIGNED
    width *= OUT_ALIGNED
    out_stride *= OUT_ALIGNED
    first_column = first_column * 16 + tl.program_id(1) * (PIECE_0 + PIECE_1 + PIECE_2)
    sum_0 = tl.zeros((PANEL, PIECE_0), tl.float32)
    chain_0 = sum_0
    if PIECE_1:
        sum_1 = tl.zeros((PANEL, PIECE_1), tl.float32)
        chain_1 = sum_1
    if PIECE_2:
        sum_2 = tl.zeros((PANEL, PIECE_2), tl.float32)
        chain_2 = sum_2

    first = tl.load(begin + item)
    for group in range(first, tl.load(end + item)):
        source = tl.load(columns + group) + k if ADJACENT else tl.load(columns + (k * zero + group) * GROUP + k)
        word = tl.load(bits + (r * zero + group) * PANEL + r)
        pattern = (word[:, None] >> k[None, :]) & 1
        here = source < num_cols
        offset = source.to(tl.int64) * x_stride if WIDE else source * x_stride
        row = x + offset
        chain_0 = _add(chain_0, pattern, row, first_column, here, readable, EVEN, MODE, INTERPRETED)
        if PIECE_1:
            chain_1 = _add(chain_1, pattern, row, first_column + PIECE_0, here, readable, EVEN, MODE, INTERPRETED)
        if PIECE_2:
            second = first_column + PIECE_0 + PIECE_1
            chain_2 = _add(chain_2, pattern, row, second, here, readable, EVEN, MODE, INTERPRETED)
        if (group - first) % CHAIN == CHAIN - 1:
            sum_0 += chain_0
            chain_0 = tl.zeros_like(sum_0)
            if PIECE_1:
                sum_1 += chain_1
                chain_1 = tl.zeros_like(sum_1)
            if PIECE_2:
                sum_2 += chain_2
                chain_2 = tl.zeros_like(sum_2)

    stored = tl.load(target + item) * PANEL + r
    store_rows(sum_0 + chain_0, stored, num_rows, first_column, width, out, out_stride, None, None, False,
               None, None, 0, 0, 0, 1.0, ACCUMULATE, WIDE)  # fmt: skip
    if PIECE_1:
        store_rows(sum_1 + chain_1, stored, num_rows, first_column + PIECE_0, width, out, out_stride, None, None, False,
                   None, None, 0, 0, 0, 1.0, ACCUMULATE, WIDE)  # fmt: skip
    if PIECE_2:
        store_rows(sum_2 + chain_2, stored, num_rows, first_column + PIECE_0 + PIECE_1, width, out, out_stride, None,
                   None, False, None, None, 0, 0, 0, 1.0, ACCUMULATE, WIDE)  # fmt: skip


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
    part = tl.load(row[:, None] + column[None, :], mask=within, other=0)  # of X
    if MODE == "ieee":
        return tl.dot(pattern.to(tl.float32), part, total, input_precision="ieee")
    if MODE == "bf16x3":
        hi = truncate_to_bfloat16(part)
        part -= hi
        mid = truncate_to_bfloat16(part)
        total = _dot(pattern, hi.to(tl.bfloat16), total, INTERPRETED)
        total = _dot(pattern, mid.to(tl.bfloat16), total, INTERPRETED)
        return _dot(pattern, (part - mid).to(tl.bfloat16), total, INTERPRETED)
    hi = part.to(tl.bfloat16)
    total = _dot(pattern, hi, total, INTERPRETED)
    if MODE == "bf16x2":
        total = _dot(pattern, (part - hi.to(tl.float32)).to(tl.bfloat16), total, INTERPRETED)
    return total


@triton.jit
def truncate_to_bfloat16(x):
    """Float32 ``x`` without its low 16 bits, which bfloat16 does not have: rounding could overflow, and the interpreter
    does not round."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _dot(pattern, part, total, INTERPRETED: tl.constexpr):
    if INTERPRETED:  # Triton's interpreter multiplies bfloat16 matrices wrongly
        return tl.dot(pattern.to(tl.float32), part.to(tl.float32), total, input_precision="ieee")
    return tl.dot(pattern.to(tl.bfloat16), part, total)


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """Variants to compile: (kernel, signature, constants, options) of representative calls, all with 16-byte loads.

    Among them are the widths of the four models of the paper, in the strides of ``aligned.empty_aligned``.
    """
    signature = dict.fromkeys(("begin", "end", "target", "columns", "bits"), "*i32:16")
    sizes = ("num_rows", "num_cols", "first_column", "width", "out_stride", "readable", "x_stride")
    signature |= dict.fromkeys(sizes, "i32") | {"out": "*fp32:16"}
    models = [(128, 128), (64, 64), (47, 48), (41, 48), (100, 104), (8, 8)]
    calls = [(panel, width, stride, "bf16x3", False, False) for panel in (32, 64, 128) for width, stride in models]
    calls += [  # rows of a panel, width, stride, mode, adjacent columns, wide
        (32, 128, 128, "bf16x3", True, False),
        (32, 41, 48, "bf16x3", True, False),
        (64, 128, 128, "bf16x2", False, False),
        (64, 41, 48, "bf16", False, True),
        (64, 41, 48, "ieee", False, False),
        (128, 128, 128, "bf16", False, False),
    ]
    tuning = PanelTuning()
    for panel, width, stride, mode, adjacent, wide in calls:
        types = {"x": "*bf16:16" if mode == "bf16" else "*fp32:16"}
        shared = dict(PANEL=panel, ADJACENT=adjacent, MODE=mode, WIDE=wide, ACCUMULATE=wide, INTERPRETED=False)
        shared |= dict(ALIGNED=8 if mode == "bf16" else 4, OUT_ALIGNED=1 if width % 4 else 4, CHAIN=tuning.chain_groups)
        options = {"num_warps": tuning.num_warps * (2 if panel == 128 else 1), "num_stages": tuning.num_stages}
        smallest = smallest_piece(options["num_warps"], 2 if mode == "bf16" else 4)
        for columns in split_columns(width, smallest, tuning.piece):
            constants: dict[str, Any] = dict(zip(("PIECE_0", "PIECE_1", "PIECE_2"), columns.pieces))
            yield multiply_panels, signature | types, constants | shared | {"EVEN": columns.end <= stride}, options
