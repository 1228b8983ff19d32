"""Dense products of tall matrices with what stands around them, on a GPU. Importing this module imports triton.

X W has millions of rows and a few hundred columns, so memory bounds it: what this file saves over a library's product
is a pass over the result for each thing that happens to it next. A program makes a tile of rows and, up to 128, all the
columns, so X is read once; where W is wider, the programs that share rows follow one another, and X comes from the
cache.

Products are of float32 quality: a number is split into two of TF32's precision, and three products of the tensor cores
are added in float32 ("tf32x3"); a single TF32 product would lose half of the digits.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.gpu import vector_unit
from fullgnn.kernels import Epilogue
from fullgnn.kernels._epilogue_gpu import EPILOGUE_TYPES, NO_STREAM, epilogue_arguments, finish
from fullgnn.lines import as_rows, empty_lines

MASK_ELEMENTS = 2048  # of a tile of a gradient
MASK_TILES = 16  # of a program, one below the other: it adds their columns
MASK_COLUMNS = 64


class _Tile(NamedTuple):
    """What a program multiplies."""

    rows: int
    columns: int
    depth: int  # columns of X in one step
    num_warps: int
    num_stages: int  # steps whose operands are under way


def matmul_gpu(x: Tensor, weight: Tensor, epilogue: Epilogue, padded: bool) -> Tensor:
    """X W with its epilogue; with ``padded``, into rows that begin a line each.

    Args:
        x: (n, f) float32, rows may lie apart, n and f > 0.
        weight: (f, g) float32, lying in any way in memory, g > 0.

    Returns:
        (n, g).
    """
    (num_rows, depth), num_columns = x.shape, weight.shape[1]
    x = as_rows(x)
    out = empty_lines(num_rows, num_columns, like=x) if padded else x.new_empty(num_rows, num_columns)
    tile = tile_for(depth, num_columns, epilogue.dropout is not None)
    x_unit, out_unit = vector_unit(x, x.stride(0), depth), vector_unit(out, out.stride(0))
    column_tiles = triton.cdiv(num_columns, tile.columns)
    _matmul[(triton.cdiv(num_rows, tile.rows) * column_tiles,)](
        x,
        x.stride(0) // x_unit,
        weight,
        *weight.stride(),
        out,
        out.stride(0) // out_unit,
        num_rows,
        depth // x_unit,
        num_columns,
        *epilogue_arguments(epilogue),
        x_unit,
        out_unit,
        column_tiles,
        *tile[:3],
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return out


def tile_for(depth: int, num_columns: int, drops: bool) -> _Tile:
    """The tile for X W with W of shape (depth, num_columns); the words of a dropout take registers, too."""
    columns = min(128, max(16, triton.next_power_of_2(num_columns)))
    if num_columns > 128 and (num_columns - 1) % 128 < 64:  # the last 64 of 128 columns would be empty
        columns = 64
    return _Tile(
        64 if columns == 128 and drops else 128, columns, 16 if depth <= 16 else 32, 8 if columns >= 64 else 4, 3
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
    X_UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr,
    COLUMN_TILES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Strides of X and the output, and the columns of X, are in units. Whole lines are written: the padding gets zeros,
    or other numbers that nobody reads."""
    x_stride *= X_UNIT
    depth *= X_UNIT
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
        x_tile = tl.load(x_at, mask=(row < num_rows)[:, None] & (step < left)[None, :], other=0.0)
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


def activation_gradients_gpu(
    g: Tensor, output: Tensor | None, scale: float, row_scale: Tensor | None
) -> tuple[Tensor, Tensor]:
    """diag(row_scale) G' in rows that begin a line each, and the column sums of G'; see ``dense.activation_gradients``.

    The sums are those of ranges of rows, which depend on the shape alone, added in order: every run has the same bits.

    Args:
        g, output: (n, h) float32 or float64, rows may lie apart.
        row_scale: (n,).
    """
    num_rows, num_columns = g.shape
    g = as_rows(g)
    out = empty_lines(num_rows, num_columns, like=g)
    columns = min(MASK_COLUMNS, max(16, triton.next_power_of_2(num_columns)))
    rows = MASK_ELEMENTS // columns
    grid = (triton.cdiv(num_rows, rows * MASK_TILES), triton.cdiv(num_columns, columns))
    sums = g.new_zeros(grid[0], num_columns)
    if g.numel():
        if output is not None:
            output = as_rows(output)
        output_stride = 0 if output is None else output.stride(0)
        row_scale = None if row_scale is None else row_scale.contiguous()
        unit, out_unit = vector_unit(g, g.stride(0), output_stride, num_columns), vector_unit(out, out.stride(0))
        strides = (g.stride(0) // unit, output_stride // unit, out.stride(0) // out_unit)
        sizes = (num_rows, num_columns // unit)
        constants = (unit, out_unit, rows, columns, MASK_TILES)
        _mask[grid](g, output, row_scale, out, sums, *strides, scale, *sizes, *constants)
    return out, sums.sum(0)


@triton.jit
def _mask(
    g,
    output,
    row_scale,
    out,
    sums,
    g_stride,
    output_stride,
    out_stride,
    factor: tl.float64,
    num_rows: tl.int64,
    num_columns,
    UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Strides and the number of columns are in units. Whole lines are written: the padding gets zeros."""
    g_stride *= UNIT
    output_stride *= UNIT
    num_columns *= UNIT
    out_stride *= OUT_UNIT
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((ROWS, COLUMNS), g.dtype.element_ty)
    for tile in range(TILES):
        row = (tl.program_id(0).to(tl.int64) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & (column < num_columns)
        masked = tl.load(g + row[:, None] * g_stride + column, mask=inside, other=0.0)
        if output is not None:
            y = tl.load(output + row[:, None] * output_stride + column, mask=inside, other=0.0)
            masked = tl.where(y <= 0, 0.0, masked * tl.full([1, 1], factor, masked.dtype))  # a nan lets it pass
        total += masked
        if row_scale is not None:
            masked *= tl.load(row_scale + row, mask=row < num_rows, other=0.0)[:, None]
        tl.store(
            out + row[:, None] * out_stride + column, masked, mask=(row < num_rows)[:, None] & (column < out_stride)
        )
    at = sums + tl.program_id(0).to(tl.int64) * num_columns + column
    tl.store(at, tl.sum(total, 0, keep_dims=True), mask=column < num_columns)


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """What is compiled: (kernel, signature, constants, options) of representative calls."""
    for depth, num_columns, parts in (
        (602, 128, "all"),
        (128, 41, "scale"),
        (64, 602, "bias"),
    ):
        tile = tile_for(depth, num_columns, parts == "all")
        signature = {
            "x": "*fp32:16",
            "x_stride": "i32",
            "weight": "*fp32:16",
            "weight_stride": "i32",
            "out": "*fp32:16",
            "out_stride": "i32",
            "num_rows": "i64",
            "depth": "i32",
            "num_columns": "i32",
            **EPILOGUE_TYPES,
        }
        constants: dict[str, Any] = {"weight_step": 1, "relu": parts == "all"}
        constants |= {"X_UNIT": 1 if depth % 4 else 4, "OUT_UNIT": 4}
        constants |= {"COLUMN_TILES": triton.cdiv(num_columns, tile.columns)}
        constants |= dict(zip(("ROWS", "COLUMNS", "DEPTH"), tile))
        if parts != "all":
            constants |= NO_STREAM | {"bias" if parts == "scale" else "scale": None}
        signature = {name: kind for name, kind in signature.items() if name not in constants}
        yield _matmul, signature, constants, {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
    for dtype, unit in (("fp32", 4), ("fp64", 2)):
        signature = {name: f"*{dtype}:16" for name in ("g", "output", "row_scale", "out", "sums")}
        signature |= {"g_stride": "i32", "output_stride": "i32", "out_stride": "i32", "factor": "fp64"}
        signature |= {"num_rows": "i64", "num_columns": "i32"}
        constants = {"ROWS": MASK_ELEMENTS // MASK_COLUMNS, "COLUMNS": MASK_COLUMNS, "TILES": MASK_TILES}
        constants |= {"UNIT": unit, "OUT_UNIT": unit}
        yield _mask, signature, constants, {"num_warps": 4}
