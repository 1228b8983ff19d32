"""The ``Epilogue`` on a GPU, as a kernel or fused into another one. Importing this module imports Triton.

A kernel with a fused epilogue takes the arguments ``epilogue_arguments(epilogue)``. It passes them to ``finish`` with
its tile, as one tuple: scale, bias, relu, and the tuple of the dropout.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.dropout._philox_gpu import ELEMENTS, MAX_COLUMNS, drop, mask_arguments
from fullgnn.kernels.epilogue.epilogue import Epilogue
from fullgnn.kernels.support.gpu import vector_unit


def epilogue_arguments(epilogue: Epilogue) -> tuple[Any, ...]:
    """The arguments of ``finish`` for ``epilogue``: scale, bias, relu, and those of the dropout."""

    def packed(vector: Tensor | None) -> Tensor | None:
        return None if vector is None else vector.contiguous()

    return packed(epilogue.scale), packed(epilogue.bias), epilogue.relu, *mask_arguments(epilogue.dropout)


def apply_gpu(y: Tensor, epilogue: Epilogue) -> Tensor:
    """Apply ``epilogue`` in place, in one pass, to ``y``: (n, F) float32 or float64, any row stride."""
    num_rows, num_columns = y.shape
    if y.numel():
        assert num_columns == 1 or y.stride(1) == 1, y.stride()
        columns = min(MAX_COLUMNS, max(4, triton.next_power_of_2(num_columns)))
        rows = ELEMENTS // columns
        grid = (triton.cdiv(num_rows, rows), triton.cdiv(num_columns, columns))
        unit = vector_unit(y, y.stride(0), num_columns)
        sizes = (y.stride(0) // unit, num_rows, num_columns // unit)
        _apply[grid](y, *sizes, *epilogue_arguments(epilogue), unit, rows, columns)
    return y


@triton.jit
def finish(y, row, num_rows, first_column, num_columns, epilogue):
    """Apply the epilogue to the [ROWS, COLUMNS] tile ``y``, and return the result.

    The tile has the rows ``row``, [ROWS] int32 or int64, and the columns from ``first_column`` on, a multiple of 4.
    Elements outside the matrix are undefined.
    """
    scale, bias, relu, dropout = epilogue
    if scale is not None:
        y = y * tl.load(scale + row, mask=row < num_rows, other=0.0)[:, None]
    if bias is not None:
        column = first_column + tl.arange(0, y.shape[1])
        y = y + tl.load(bias + column, mask=column < num_columns, other=0.0)[None, :]
    if relu:
        y = tl.where(y <= 0, 0.0, y)  # not a maximum, which would hide a nan
    return drop(y, row, num_rows, first_column, dropout)


@triton.jit
def store_rows(
    y,  # [ROWS, COLUMNS] sums
    row,  # [ROWS] int32 rows of ``out``; ``num_rows`` stands for no row
    num_rows,
    first_column,  # a multiple of 4
    width,
    out,  # (num_rows, width)
    out_stride,
    epilogue,  # see ``finish``
    ACCUMULATE: tl.constexpr,
    WIDE: tl.constexpr,  # whether offsets need 64 bits
):
    """Apply the epilogue to ``y``, or with ACCUMULATE to y + out, and store the result to some rows of ``out``."""
    column = first_column + tl.arange(0, y.shape[1])
    within = (row < num_rows)[:, None] & (column < width)[None, :]
    offset = row.to(tl.int64) * out_stride if WIDE else row * out_stride
    to = out + offset[:, None] + column[None, :]
    if ACCUMULATE:
        y += tl.load(to, mask=within, other=0)
    tl.store(to, finish(y, row, num_rows, first_column, width, epilogue), mask=within)


@triton.jit
def _apply(
    y,
    y_stride,
    num_rows: tl.int64,
    num_columns,
    scale,
    bias,
    relu: tl.constexpr,
    node_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Apply an epilogue to ``y`` in place. The stride and the number of columns are in units, see ``vector_unit``."""
    y_stride *= UNIT
    num_columns *= UNIT
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    first_column = tl.program_id(1) * COLUMNS
    column = first_column + tl.arange(0, COLUMNS)[None, :]
    inside = (row < num_rows)[:, None] & (column < num_columns)
    at = y + row[:, None] * y_stride + column
    tile = tl.load(at, mask=inside, other=0.0)
    epilogue = (scale, bias, relu, (node_id, epoch, seed, layer, threshold, drop_scale))
    tl.store(at, finish(tile, row, num_rows, first_column, num_columns, epilogue), mask=inside)
