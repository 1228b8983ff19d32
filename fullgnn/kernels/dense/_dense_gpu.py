"""Dense products of tall matrices with fused epilogues, on a GPU. Importing this module imports triton.

X W has millions of rows and a few hundred columns, so memory bounds it. Compared with a library's product, this file
saves a pass over the result for each operation of the epilogue. A program computes a tile of rows with all columns, up
to 128, so X is read once; where W is wider, the programs that share rows follow one another, and X comes from the
cache.

Products are of float32 quality: a number is split into two of TF32's precision, and three products of the tensor cores
are added in float32 ("tf32x3"); a single TF32 product would lose half of the digits.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.epilogue._epilogue_gpu import EPILOGUE_TYPES, NO_DROPOUT, epilogue_arguments, finish
from fullgnn.kernels.epilogue.epilogue import Epilogue
from fullgnn.kernels.support.aligned import as_rows, empty_aligned
from fullgnn.kernels.support.gpu import row_unit, vector_unit
from fullgnn.kernels.support.tuning import DenseTuning, tuning_for


class _Tile(NamedTuple):
    """The tile of one program."""

    rows: int
    columns: int
    depth: int  # columns of X in one step
    num_warps: int
    num_stages: int  # steps whose operands are loaded at the same time


def matmul_gpu(x: Tensor, weight: Tensor, epilogue: Epilogue, padded: bool) -> Tensor:
    """X W with its epilogue; with ``padded``, its rows begin at cache lines.

    Args:
        x: (n, f) float32, any row stride, n and f > 0.
        weight: (f, g) float32, any strides, g > 0.

    Returns:
        (n, g).
    """
    (num_rows, depth), num_columns = x.shape, weight.shape[1]
    x = as_rows(x)
    out = empty_aligned(num_rows, num_columns, like=x) if padded else x.new_empty(num_rows, num_columns)
    tile = tile_for(depth, num_columns, epilogue.dropout is not None, tuning_for(x.device).dense.at(num_columns))
    x_unit, out_unit = row_unit(x), vector_unit(out, out.stride(0))
    column_tiles = triton.cdiv(num_columns, tile.columns)
    _matmul[(triton.cdiv(num_rows, tile.rows) * column_tiles,)](
        x,
        x.stride(0) // x_unit,
        weight,
        *weight.stride(),
        out,
        out.stride(0) // out_unit,
        num_rows,
        depth,
        triton.cdiv(depth, x_unit),
        num_columns,
        *epilogue_arguments(epilogue),
        depth % x_unit > 0,
        x_unit,
        out_unit,
        column_tiles,
        *tile[:3],
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return out


def tile_for(depth: int, num_columns: int, drops: bool, tuning: DenseTuning) -> _Tile:
    """The tile for X W with W of shape (depth, num_columns).

    Args:
        drops: whether the epilogue ends with a dropout.
    """
    most = tuning.product_columns
    columns = min(most, max(16, triton.next_power_of_2(num_columns)))
    if num_columns > most and (num_columns - 1) % most < most // 2:  # the last half of the columns would be empty
        columns = most // 2
    return _Tile(
        tuning.product_rows_with_dropout if columns == most and drops else tuning.product_rows,
        columns,
        min(tuning.product_depth, max(16, triton.next_power_of_2(depth))),
        tuning.product_warps if columns > 32 else tuning.product_warps // 2,
        tuning.product_stages,
    )


@triton.jit
def _matmul(
    x,
    x_stride,
    weight,
    weight_stride,
    weight_step,
    out,
    out_stride,
    num_rows: tl.int64,
    depth,
    x_columns,
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
    X_PADDED: tl.constexpr,  # the padding of X is read as well
    X_UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr,
    COLUMN_TILES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Strides of X and the output, and the columns of X that may be read, are in units of ``*_UNIT`` elements. Whole
    cache lines are written: the padding gets zeros, or other numbers that are never used."""
    x_stride *= X_UNIT
    x_columns *= X_UNIT
    out_stride *= OUT_UNIT
    row = (tl.program_id(0) // COLUMN_TILES).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    first_column = tl.program_id(0) % COLUMN_TILES * COLUMNS
    column = first_column + tl.arange(0, COLUMNS)[None, :]
    step = tl.arange(0, DEPTH)
    x_at = x + row[:, None] * x_stride + step[None, :]
    weight_at = weight + step[:, None] * weight_stride + column * weight_step
    y = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, depth, DEPTH):
        left = depth - first
        x_tile = tl.load(x_at, mask=(row < num_rows)[:, None] & (step < x_columns - first)[None, :], other=0.0)
        if X_PADDED:  # the padding may hold nan
            x_tile = tl.where((step < left)[None, :], x_tile, 0.0)
        weight_tile = tl.load(weight_at, mask=(step < left)[:, None] & (column < num_columns), other=0.0)
        y = tl.dot(x_tile, weight_tile, y, input_precision="tf32x3")
        x_at += DEPTH
        weight_at += DEPTH * weight_stride
    y = finish(
        y,
        row,
        num_rows,
        first_column,
        num_columns,
        scale,
        bias,
        relu,
        node_id,
        epoch,
        seed,
        layer,
        threshold,
        drop_scale,
    )
    tl.store(out + row[:, None] * out_stride + column, y, mask=(row < num_rows)[:, None] & (column < out_stride))


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """Variants to compile: (kernel, signature, constants, options) of representative calls."""
    for depth, num_columns, parts in (
        (602, 128, "bias dropout"),  # Reddit
        (128, 41, "scale"),
        (100, 64, "bias dropout"),  # Products
        (64, 47, "scale"),
        (8, 128, "bias dropout"),  # Proteins
        (128, 112, "scale"),
        (64, 602, "bias"),
    ):
        tile = tile_for(depth, num_columns, "dropout" in parts, DenseTuning())
        signature = {
            "x": "*fp32:16",
            "x_stride": "i32",
            "weight": "*fp32:16",
            "weight_stride": "i32" if num_columns % 16 else "i32:16",
            "out": "*fp32:16",
            "out_stride": "i32",
            "num_rows": "i64",
            "depth": "i32",
            "x_columns": "i32",
            "num_columns": "i32" if num_columns % 16 else "i32:16",
            **EPILOGUE_TYPES,
        }
        constants: dict[str, Any] = {"weight_step": 1, "relu": "dropout" in parts, "X_PADDED": depth % 4 > 0}
        constants |= {"X_UNIT": 4, "OUT_UNIT": 4, "COLUMN_TILES": triton.cdiv(num_columns, tile.columns)}
        constants |= dict(zip(("ROWS", "COLUMNS", "DEPTH"), tile))
        constants |= {name: None for name in ("scale", "bias") if name not in parts}
        constants |= {} if "dropout" in parts else NO_DROPOUT
        signature = {name: kind for name, kind in signature.items() if name not in constants}
        yield _matmul, signature, constants, {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
