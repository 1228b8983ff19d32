"""Gradients of a dense layer on a GPU: X^T G, and G masked by the ReLU. Importing this module imports triton.

X and G are tall: a result of a few hundred rows and columns is summed over all nodes, and memory bounds the product of
most layers. Each program takes a tile of the result and a range of rows ("split-K"):

    for each step of a range           G' = factor G where the output is positive; the bias's gradient adds its rows
        part of the result += dot(G' tile^T, X tile)^T
    the parts of all ranges are added in a second kernel, in order, in float64

The parts of all ranges may take more memory than the GPU has left. So the two kernels take turns: each time the first
one writes parts of ``PARTS_BYTES`` at most, and the second one adds them to a sum in float64.

Where X is wider than a tile, the programs that share a range would each compute G' again, so one pass over G computes
G' before. How rows are cut into ranges depends on the shape and the constants of ``DenseTuning`` alone, and nothing is
added with atomics: every run gives the same bits. Products are of float32 quality ("tf32x3"): a number is split into
two of TF32's precision, and three products of the tensor cores are added in float32; a single TF32 product would lose
half of the digits.

Sums are short, so that their rounding does not grow with the number of rows. The tensor cores, which truncate where
float32 rounds, add the rows of one step, from 0; a program adds at most ``gradient_steps`` steps in float32; the second
kernel adds the programs. With the default constants, 24 steps of 32 rows, sums of equal addends are off by at most 1e-6
of the sum of magnitudes, whatever the number of rows. In units of 2^-24 of that sum: a running sum of 24 steps loses at
most 9.4, half a unit in the last place of each partial sum; four times eight products, each sum truncated, lose at most
2 (1/4 + 2/4 + 3/4 + 1) = 5; the last rounding loses 1.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.support.aligned import as_rows, empty_aligned
from fullgnn.kernels.support.gpu import row_unit, vector_unit
from fullgnn.kernels.support.tuning import PARTS_BYTES, DenseTuning, tuning_for


class _Split(NamedTuple):
    """How X^T G is divided among programs."""

    num_ranges: int  # ranges of rows
    range_rows: int
    input_tiles: int  # tiles of X's columns
    column_tiles: int  # tiles of G's columns
    rows: int  # rows of a step
    inputs: int
    columns: int
    num_warps: int
    num_stages: int

    @property
    def sum_rows(self) -> int:
        """Rows of G that the threads of a program read at once, 16 bytes per thread; each row has sums of its own."""
        return min(self.rows, max(1, self.num_warps * 32 * 4 // self.columns))


def split_for(num_rows: int, num_inputs: int, num_columns: int, streams: int, tuning: DenseTuning) -> _Split:
    """The tiles and ranges of X^T G, for X (num_rows, num_inputs) and G (num_rows, num_columns).

    Args:
        streams: 1 if only G is read, 2 if the output is read too, 3 if G' is also written.
    """
    inputs = _tile(num_inputs, tuning.gradient_inputs)
    columns = _tile(num_columns, tuning.gradient_columns)
    input_tiles, column_tiles = triton.cdiv(num_inputs, inputs), triton.cdiv(num_columns, columns)
    rows = tuning.gradient_rows
    if streams > 1 and inputs * columns > 128 * 64:  # as many numbers as fit into the registers
        rows = max(16, rows // 2)
    steps = triton.cdiv(num_rows * input_tiles * column_tiles, rows * tuning.gradient_programs)
    range_rows = rows * min(max(steps, 1), tuning.gradient_steps)
    halves = 2 * 4 * rows * inputs  # X's numbers are split into two of TF32's precision each, in shared memory
    ahead = (tuning.gradient_shared_bytes - halves) // (4 * rows * (inputs + columns * min(streams, 2)))
    return _Split(
        triton.cdiv(num_rows, range_rows),
        range_rows,
        input_tiles,
        column_tiles,
        rows,
        inputs,
        columns,
        tuning.gradient_warps if max(inputs, columns) > 64 else tuning.gradient_warps // 2,
        max(2, min(tuning.gradient_stages, ahead + 1)),
    )


def _tile(size: int, most: int) -> int:
    return min(most, max(16, triton.next_power_of_2(size)))


def linear_gradients_gpu(
    x: Tensor, g: Tensor, output: Tensor | None, scale: float, keep_masked: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """X^T G', the column sums of G', and G'; see ``dense.linear_gradients``.

    Args:
        x: (n, f) float32, any row stride, n and f > 0.
        g: (n, h) float32, any row stride, h > 0.
        output: (n, h) float32, any row stride; or None.

    Returns:
        (f, h), (h,), and (n, h) in rows that begin at cache lines, or None. G' is G itself where nothing masks it.
    """
    (num_rows, num_inputs), num_columns = x.shape, g.shape[1]
    tuning = tuning_for(x.device).dense.at(num_columns)
    if output is not None and num_inputs > tuning.gradient_inputs:
        g, sums = activation_gradients_gpu(g, output, scale, None)
        gradient = linear_gradients_gpu(x, g, None, 1.0, keep_masked=False)[0]
        return gradient, sums, g if keep_masked else None
    x, g, output = as_rows(x), as_rows(g), None if output is None else as_rows(output)
    masked = empty_aligned(num_rows, num_columns, like=g) if output is not None and keep_masked else None
    split = split_for(num_rows, num_inputs, num_columns, 1 + (output is not None) + (masked is not None), tuning)
    ranges = ranges_at_once(split.num_ranges, (num_inputs + 1) * _part_columns(num_columns, g) * g.element_size())
    parts = _empty_parts(ranges, num_inputs + 1, num_columns, like=g)
    x_unit, g_unit = row_unit(x), row_unit(g) if output is None else row_unit(g, output)
    part_unit = vector_unit(parts)
    masked_unit = 1 if masked is None else vector_unit(masked, masked.stride(0))
    in_one_turn = ranges == split.num_ranges
    total = g.new_empty(num_inputs + 1, num_columns, dtype=g.dtype if in_one_turn else torch.float64)
    for first in range(0, split.num_ranges, ranges):
        rows = slice(first * split.range_rows, (first + ranges) * split.range_rows)
        of_turn = parts[: split.num_ranges - first]
        _outer[(len(of_turn) * split.column_tiles * split.input_tiles,)](
            *_rows_and_stride(x, x_unit, rows),
            *_rows_and_stride(g, g_unit, rows),
            *_rows_and_stride(output, g_unit, rows),
            *_rows_and_stride(masked, masked_unit, rows),
            parts,
            parts.shape[2] // part_unit,
            scale,
            len(x[rows]),
            split.range_rows,
            num_inputs,
            triton.cdiv(num_inputs, x_unit),
            num_columns,
            triton.cdiv(num_columns, g_unit),
            x_unit,
            g_unit,
            masked_unit,
            part_unit,
            split.sum_rows,
            *split[2:7],
            "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32",
            num_warps=split.num_warps,
            num_stages=split.num_stages,
        )
        add_parts(of_turn, total, accumulate=first > 0)
    total = total.to(g.dtype)
    kept = None if not keep_masked else g if output is None else masked
    return total[:num_inputs], total[num_inputs], kept


@triton.jit
def _outer(
    x,
    x_stride,
    g,
    g_stride,
    output,
    output_stride,
    masked,
    masked_stride,
    parts,  # (ranges, f + 1, part_stride); the last row has the column sums
    part_stride,
    factor: tl.float64,
    num_rows: tl.int64,
    range_rows,
    num_inputs,
    x_columns,
    num_columns,
    g_columns,
    X_UNIT: tl.constexpr,
    G_UNIT: tl.constexpr,
    MASKED_UNIT: tl.constexpr,
    PART_UNIT: tl.constexpr,
    SUM_ROWS: tl.constexpr,  # rows of G that lie in different threads
    INPUT_TILES: tl.constexpr,
    COLUMN_TILES: tl.constexpr,
    ROWS: tl.constexpr,
    INPUTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,  # tf32x3: all digits of float32
):
    """Strides, and the columns that may be read (``x_columns``, ``g_columns``), are in units of ``*_UNIT`` elements.

    Numbers that are read past the columns of X and G affect only rows and columns of the part that are not stored. All
    programs of a range compute G'; those of the first tile of X's columns store G' and its column sums.
    """
    x_stride *= X_UNIT
    x_columns *= X_UNIT
    g_stride *= G_UNIT
    output_stride *= G_UNIT
    g_columns *= G_UNIT
    masked_stride *= MASKED_UNIT
    part_stride *= PART_UNIT
    input_tile = tl.program_id(0) % INPUT_TILES  # neighbours share G and the output, which then are in the L2 cache
    column_tile = tl.program_id(0) // INPUT_TILES % COLUMN_TILES
    part = (tl.program_id(0) // (INPUT_TILES * COLUMN_TILES)).to(tl.int64)
    first_row = part * range_rows
    rows_left = tl.minimum(num_rows - first_row, range_rows).to(tl.int32)
    row = tl.arange(0, ROWS)[:, None]
    x_column = input_tile * INPUTS + tl.arange(0, INPUTS)[None, :]
    column = column_tile * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    x += first_row * x_stride
    g += first_row * g_stride
    if output is not None:
        output += first_row * output_stride
    if masked is not None:
        masked += first_row * masked_stride
        stores = (column < masked_stride) & (input_tile == 0)
    total = tl.zeros((COLUMNS, INPUTS), tl.float32)
    sums = tl.zeros((SUM_ROWS, COLUMNS), tl.float32)
    for first in range(0, rows_left, ROWS):
        inside = row < rows_left - first
        x_tile = tl.load(x + (row * x_stride + x_column), mask=inside & (x_column < x_columns), other=0.0)
        gradient = tl.load(g + (row * g_stride + column), mask=inside & (column < g_columns), other=0.0)
        if output is not None:
            y = tl.load(output + (row * output_stride + column), mask=inside & (column < g_columns), other=0.0)
            gradient = tl.where(y <= 0, 0.0, gradient * tl.full([1, 1], factor, tl.float32))  # kept where y is nan
            output += ROWS * output_stride
            if masked is not None:
                to = masked + (row * masked_stride + column)
                tl.store(to, tl.where(column < num_columns, gradient, 0.0), mask=inside & stores)
                masked += ROWS * masked_stride
        sums += tl.sum(tl.reshape(gradient, (ROWS // SUM_ROWS, SUM_ROWS, COLUMNS)), 0)
        # G'^T X instead of X^T G': Triton would load only 4 bytes at a time of a matrix that it transposes on loading.
        total += tl.dot(tl.trans(gradient), x_tile, input_precision=PRECISION)
        x += ROWS * x_stride
        g += ROWS * g_stride
    part_at = parts + part * part_stride * (num_inputs + 1)
    of_input = input_tile * INPUTS + tl.arange(0, INPUTS)[:, None]
    within = (of_input < num_inputs) & (column < part_stride)
    tl.store(part_at + of_input * part_stride + column, tl.trans(total), mask=within)
    at = part_at + num_inputs * part_stride + column
    tl.store(at, tl.sum(sums, 0, keep_dims=True), mask=(column < part_stride) & (input_tile == 0))


def activation_gradients_gpu(
    g: Tensor, output: Tensor | None, scale: float, row_scale: Tensor | None
) -> tuple[Tensor, Tensor]:
    """diag(row_scale) G' in rows that begin at cache lines, and the column sums of G'; see ``activation_gradients``.

    The sums of ranges of rows, which depend on the shape alone, are added in order: every run gives the same bits.

    Args:
        g, output: (n, h) float32 or float64, any row stride.
        row_scale: (n,).
    """
    num_rows, num_columns = g.shape
    g = as_rows(g)
    out = empty_aligned(num_rows, num_columns, like=g)
    if not g.numel():
        return out, g.new_zeros(num_columns)
    tuning = tuning_for(g.device).dense.at(num_columns)
    columns = _tile(num_columns, tuning.mask_columns)
    rows = max(1, tuning.mask_elements // columns)
    grid = (triton.cdiv(num_rows, rows * tuning.mask_tiles), triton.cdiv(num_columns, columns))
    parts = _empty_parts(grid[0], 1, num_columns, like=g)
    output = None if output is None else as_rows(output)
    unit = row_unit(g) if output is None else row_unit(g, output)
    out_unit, part_unit = vector_unit(out, out.stride(0)), vector_unit(parts)
    _mask[grid](
        *_rows_and_stride(g, unit),
        *_rows_and_stride(output, unit),
        None if row_scale is None else row_scale.contiguous(),
        *_rows_and_stride(out, out_unit),
        parts,
        parts.shape[2] // part_unit,
        scale,
        num_rows,
        num_columns,
        triton.cdiv(num_columns, unit),
        unit,
        out_unit,
        part_unit,
        rows,
        columns,
        tuning.mask_tiles,
    )
    return out, add_parts(parts, g.new_empty(1, num_columns))[0]


@triton.jit
def _mask(
    g,
    g_stride,
    output,
    output_stride,
    row_scale,
    out,
    out_stride,
    parts,  # (ranges, 1, part_stride)
    part_stride,
    factor: tl.float64,
    num_rows: tl.int64,
    num_columns,
    g_columns,
    UNIT: tl.constexpr,
    OUT_UNIT: tl.constexpr,
    PART_UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Strides, and ``g_columns``, the columns that may be read, are in units of ``*UNIT`` elements; padding gets 0."""
    g_stride *= UNIT
    output_stride *= UNIT
    g_columns *= UNIT
    out_stride *= OUT_UNIT
    part_stride *= PART_UNIT
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((ROWS, COLUMNS), g.dtype.element_ty)
    for tile in range(TILES):
        row = (tl.program_id(0).to(tl.int64) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & (column < g_columns)
        masked = tl.load(g + row[:, None] * g_stride + column, mask=inside, other=0.0)
        if output is not None:
            y = tl.load(output + row[:, None] * output_stride + column, mask=inside, other=0.0)
            masked = tl.where(y <= 0, 0.0, masked * tl.full([1, 1], factor, masked.dtype))  # kept where y is nan
        masked = tl.where(column < num_columns, masked, 0.0)
        total += masked
        if row_scale is not None:
            masked *= tl.load(row_scale + row, mask=row < num_rows, other=0.0)[:, None]
        tl.store(
            out + row[:, None] * out_stride + column, masked, mask=(row < num_rows)[:, None] & (column < out_stride)
        )
    at = parts + tl.program_id(0).to(tl.int64) * part_stride + column
    tl.store(at, tl.sum(total, 0, keep_dims=True), mask=column < part_stride)


def _rows_and_stride(matrix: Tensor | None, unit: int, rows: slice = slice(None)) -> tuple[Tensor | None, int]:
    """The two arguments by which a kernel gets some ``rows`` of a matrix: the rows, and their stride, counted in
    ``unit`` elements; (None, 0) if there is no matrix."""
    return (None, 0) if matrix is None else (matrix[rows], matrix.stride(0) // unit)


def _empty_parts(num_parts: int, num_rows: int, num_columns: int, like: Tensor) -> Tensor:
    """(num_parts, num_rows, num_columns rounded up to a multiple of 16 bytes), uninitialised."""
    return like.new_empty(num_parts, num_rows, _part_columns(num_columns, like))


def _part_columns(num_columns: int, like: Tensor) -> int:
    unit = vector_unit(like)
    return triton.cdiv(num_columns, unit) * unit


def ranges_at_once(num_ranges: int, part_bytes: int) -> int:
    """Ranges whose parts exist at one time: as few turns as ``PARTS_BYTES`` allows, of about as many ranges each."""
    num_turns = triton.cdiv(num_ranges, max(1, PARTS_BYTES // part_bytes))
    return triton.cdiv(num_ranges, num_turns)


def add_parts(parts: Tensor, out: Tensor, accumulate: bool = False) -> Tensor:
    """Write the sum over the parts, added in float64 and in a fixed order, to ``out``, and return it.

    Args:
        parts: (num_parts, rows, columns) contiguous, float32 or float64, the columns a multiple of 16 bytes.
        out: (rows, some of the leading columns), contiguous, float32 or float64.
        accumulate: whether to add to ``out``.
    """
    num_parts, num_rows, columns = parts.shape
    num_columns = out.shape[1]
    tuning = tuning_for(parts.device).dense.at(num_columns)
    unit = vector_unit(parts, columns)
    at_once = min(tuning.sum_parts, triton.next_power_of_2(num_parts))
    elements = tuning.sum_elements // at_once
    sizes = (num_parts, num_rows * columns // unit, columns // unit, num_columns)
    _add[(triton.cdiv(num_rows * columns, elements),)](parts, out, *sizes, accumulate, unit, at_once, elements)
    return out


@triton.jit
def _add(
    parts,
    out,
    num_parts,
    size,
    columns,
    num_columns,
    ACCUMULATE: tl.constexpr,
    UNIT: tl.constexpr,
    PARTS: tl.constexpr,
    ELEMENTS: tl.constexpr,
):
    """``size``, the elements of a part, and ``columns``, the elements of one of its rows, are in units of UNIT."""
    size *= UNIT
    columns *= UNIT
    element = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    part = tl.arange(0, PARTS)
    at = parts + part[:, None].to(tl.int64) * size + element[None, :]
    total = tl.zeros((PARTS, ELEMENTS), tl.float64)
    for first in range(0, num_parts, PARTS):
        inside = (part < num_parts - first)[:, None] & (element < size)[None, :]
        total += tl.load(at, mask=inside, other=0.0).to(tl.float64)
        at += tl.cast(size, tl.int64) * PARTS
    wanted = (element < size) & (element % columns < num_columns)
    to = out + element // columns * num_columns + element % columns
    summed = tl.sum(total, 0)
    if ACCUMULATE:
        summed += tl.load(to, mask=wanted, other=0.0).to(tl.float64)
    tl.store(to, summed.to(out.dtype.element_ty), mask=wanted)
