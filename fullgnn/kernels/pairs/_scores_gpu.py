"""The scores of :mod:`fullgnn.kernels.pairs.scores` on a GPU. Importing this module imports Triton.

A program reads both rows of a few pairs, 16 bytes at a time, and writes a number for each pair. Torch's expression
would write both rows of every pair and their elementwise product to memory first.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.spmm.reading import CHAIN
from fullgnn.kernels.support.gpu import row_unit

MAX_COLUMNS = 128  # of a program's tile, unless a sum would then have more than ``CHAIN`` addends one after the other
ELEMENTS = 2048  # of this tile


def scores_gpu(left: Tensor, left_index: Tensor, right: Tensor, right_index: Tensor) -> Tensor:
    """See ``pair_scores``. Sums have the dtype of the rows, and every run gives the same bits.

    Args:
        left, right: (n, F) and (m, F), both float32 or both float64, with contiguous rows of any row stride.
    """
    num_pairs, width = len(left_index), left.shape[1]
    out = left.new_empty(num_pairs)
    if width == 0 or num_pairs == 0:
        return out.zero_()
    columns, pairs = tile_of(width)
    unit = row_unit(left, right)
    _scores[(triton.cdiv(num_pairs, pairs),)](
        left,
        left.stride(0) // unit,
        left_index.contiguous(),
        right,
        right.stride(0) // unit,
        right_index.contiguous(),
        out,
        num_pairs,
        width,
        triton.cdiv(width, unit),
        width % unit > 0,
        unit,
        pairs,
        columns,
    )
    return out


def tile_of(width: int) -> tuple[int, int]:
    """The columns and the pairs of a program's tile, for rows of ``width`` columns; powers of two."""
    columns = triton.next_power_of_2(max(4, min(width, MAX_COLUMNS), triton.cdiv(width, CHAIN)))
    return columns, max(1, ELEMENTS // columns)


@triton.jit
def _scores(
    left,  # (n, F)
    left_stride,
    left_index,  # (num_pairs,) int64
    right,  # (m, F)
    right_stride,
    right_index,  # (num_pairs,) int64
    out,  # (num_pairs,)
    num_pairs: tl.int64,
    width,
    readable,
    PADDED: tl.constexpr,  # more columns than ``width`` are read
    UNIT: tl.constexpr,
    PAIRS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The strides, and ``readable``, the columns that may be read, are in units of UNIT elements."""
    left_stride *= UNIT
    right_stride *= UNIT
    readable *= UNIT
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    there = pair < num_pairs
    column = tl.arange(0, COLUMNS)[None, :]
    of_left = left + (tl.load(left_index + pair, mask=there, other=0) * left_stride)[:, None] + column
    of_right = right + (tl.load(right_index + pair, mask=there, other=0) * right_stride)[:, None] + column
    total = tl.zeros((PAIRS, COLUMNS), out.dtype.element_ty)
    for first in range(0, width, COLUMNS):
        inside = there[:, None] & (column < readable - first)
        products = tl.load(of_left, mask=inside, other=0.0) * tl.load(of_right, mask=inside, other=0.0)
        if PADDED:  # the padding may hold nan
            products = tl.where(column < width - first, products, 0.0)
        total += products
        of_left += COLUMNS
        of_right += COLUMNS
    tl.store(out + pair, tl.sum(total, 1), mask=there)
