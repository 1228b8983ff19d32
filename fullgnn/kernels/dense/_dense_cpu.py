"""The compiled product X^T G of a dense layer's backward pass. Importing this module imports numba.

X and G are tall: a result of a few hundred rows and columns is summed over all nodes. A general library first copies
both into its own layout, as much memory traffic as the product itself. Here a chunk of rows of X and G is read into the
cache once. In the cache, G is masked by the ReLU that follows the layer and its columns are summed for the bias. Then
tiles of the result that fit into the vector registers add up the chunk, one tile after another:

    for each chunk of rows             of G': G where the output is positive; the bias's gradient adds its rows
        for each slice of columns of X
            for each tile of columns of G'
                for each row           tile += outer(G' row, X row), in registers

X and G' change places where that wastes fewer lanes: slices are whole vectors, and 100 columns fill 7 of 8, but 64 fill
all of 4. An element of the result is the same sum either way.

X may have a second half, rows of another matrix in any order, which are copied to the cache chunk by chunk.

A float32 that is added to a sum many times its size loses bits. So a tile in registers sums a chain of 32 rows; the
chains of a chunk are added, then the chunks of a stretch of about 2,048 rows, and many stretches are added in float64.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.dense.dense import Picked
from fullgnn.kernels.support.aligned import LINE_BYTES, Slices, lanes_of, memory_of, registers, slices_of
from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.kernels.support.vectors import (
    add,
    add_outer,
    compiled,
    load,
    prefetch,
    store,
    times,
    where_positive,
    zeros,
)

CHAIN_ROWS = 32  # rows whose products are added one after the other
CHUNK_ROWS = 4 * CHAIN_ROWS  # so that a chunk of X and G fits into the L2 cache, a slice and a tile of it into L1
STRETCH_ROWS = 16 * CHUNK_ROWS  # rows that are summed in the dtype of X; up to twice as many are not cut
MIN_ROWS, MAX_RANGES = 2048, 16  # ranges of rows for the threads; each range has a sum of its own


class _Shape(NamedTuple):
    """How the columns of one matrix are cut into slices, those of the other into tiles; see the head of this file."""

    swapped: bool  # whether the slices are those of G; else those of X
    slices: Slices
    tile: int  # columns of a tile
    num_tiles: int  # as many of them as needed have a column less
    num_narrow: int  # that many

    @property
    def work(self) -> int:
        """Vectors that a row is multiplied to."""
        num_vectors = len(self.slices.firsts) * self.slices.num_vectors
        return num_vectors * (self.num_tiles * self.tile - self.num_narrow)


def weight_gradient_cpu(
    x: Tensor, g: Tensor, output: Tensor | None, scale: float, masked: Tensor | None, picked: Picked | None = None
) -> tuple[Tensor, Tensor]:
    """X^T G' (f, h) and the column sums of G' (h,), where G' is ``scale`` G, with 0 where ``output`` is not positive.

    The number of threads does not change a bit of the result.

    Args:
        x: (n, f); g, output: (n, h), h > 0; all float32 or all float64, any row stride.
        masked: (n, h) matrix to which G' is written as well; only with ``output``.
        picked: n rows beside those of ``x``, as wide as they are; the first result is then (2 f, h).
    """
    (num_rows, f), h = x.shape, g.shape[1]
    size, num_halves = x.element_size(), 1 if picked is None else 2
    shape, register_lanes = shape_of(f, h, size), registers()[1] // size
    slices, num_ranges = shape.slices, max(1, min(MAX_RANGES, num_rows // MIN_ROWS))
    num_columns, lanes = f if shape.swapped else h, slices.num_vectors * slices.lanes
    g_lanes = lanes_of(h, register_lanes)
    stretches = x.new_zeros(num_ranges, num_halves * len(slices.firsts) * num_columns * lanes)
    many = num_rows > 2 * num_ranges * STRETCH_ROWS
    totals = torch.zeros(num_ranges, stretches.shape[1] if many else 0, dtype=torch.float64)
    sums = torch.zeros(num_ranges, -(-h // g_lanes) * g_lanes, dtype=torch.float64)
    copied_lanes = 0 if picked is None else lanes_of(f, register_lanes)
    kind = shape.swapped, slices.lanes, slices.num_vectors, shape.tile, shape.num_narrow > 0, g_lanes, copied_lanes
    loop = _accumulator(8 * size, *kind, output is not None)
    tiles = shape.num_tiles - shape.num_narrow, shape.num_narrow
    given = (f, h), tiles, memory_of(x), slices.offsets(size), memory_of(g), memory_of(output), scale
    of_picked = memory_of(None if picked is None else picked.matrix)
    index = np.empty(0, np.int32) if picked is None else picked.index.numpy()
    scratch = x.new_empty(num_ranges, sums.shape[1] + shape.tile * lanes)
    arrays = [part.numpy() for part in (scratch, stretches, totals, sums)]

    def accumulate(task: tuple[int, slice]) -> None:
        number, rows = task
        kept, num_chunk = masked, min(CHUNK_ROWS, rows.stop - rows.start)
        if output is not None and masked is None:
            kept = x.new_empty(num_chunk, h)
        copied = x.new_empty(num_chunk if picked is not None else 0, f)
        beside = *of_picked, index, copied.numpy()
        of_range = tuple(part[number] for part in arrays)
        loop((rows.start, rows.stop), *given, memory_of(kept), masked is not None, beside, of_range)

    parallel_for(accumulate, enumerate(even_slices(num_rows, num_ranges)))
    total, column_sums = stretches.sum(0), sums.sum(0).to(x.dtype)
    if many:
        total = (totals.sum(0) + total).to(x.dtype)
    halves = total.view(num_halves, len(slices.firsts), num_columns, lanes)
    joined = [_joined(half, slices, h if shape.swapped else f) for half in halves]
    gradients = [half if shape.swapped else half.t() for half in joined]
    return gradients[0] if picked is None else torch.cat(gradients), _without_overlap(column_sums, g_lanes, h)


@functools.cache
def shape_of(f: int, h: int, size: int) -> _Shape:
    """The shape for (n, f) X and (n, h) G that needs the fewest multiplications."""
    return min(_sliced(f, h, size, swapped=False), _sliced(h, f, size, swapped=True), key=lambda shape: shape.work)


def _sliced(sliced: int, tiled: int, size: int, swapped: bool) -> _Shape:
    """Cut ``sliced`` columns into slices, and ``tiled`` columns into tiles."""
    num_registers = registers()[0]
    slices = slices_of(sliced, size, num_registers // 8)
    num_tiles = -(-tiled // (num_registers * 3 // 4 // slices.num_vectors))
    tile = -(-tiled // num_tiles) if num_tiles else 0
    return _Shape(swapped, slices, tile, num_tiles, num_tiles * tile - tiled)


def _joined(total: Tensor, slices: Slices, sliced: int) -> Tensor:
    """Join the slices: (num_slices, tiled columns, lanes of a slice) to (tiled columns, ``sliced`` columns)."""
    out = total.new_empty(total.shape[1], sliced)
    for first, part in zip(slices.firsts, total):
        out[:, first : first + slices.width] = _without_overlap(part, slices.lanes, slices.width)
    return out


def _without_overlap(vectors: Tensor, lanes: int, width: int) -> Tensor:
    """(..., num_vectors * lanes) to (..., width): the last vector ends at the last column and may repeat some."""
    num_last = width - lanes * (-(-width // lanes) - 1)
    return torch.cat([vectors[..., : width - num_last], vectors[..., vectors.shape[-1] - num_last :]], dim=-1)


@numba.njit(inline="always")
def _add_chunk(total, last, zero, chains, num_rows, place, stride, size, row, row_stride, row_last, row_of_slice):
    """Add the outer products of ``num_rows`` rows, chain by chain, to the tile at the address ``total``.

    An iteration takes two rows: the processor predicts the end of 16 iterations, but not of 32.

    Args:
        last: offset of the last vector of the tile, in bytes.
        zero: a tile of zeros.
        chains: address of scratch for a tile: the sum of the chains so far.
        place: address of a tile of columns in the first row; stride: row stride; size: of a number; all in bytes.
        row: address of a slice of columns in the first row; row_stride, row_last: row stride, and offset of the last
            vector, in bytes; row_of_slice: has the type of a slice of a row.
    """
    for chain_row in range(0, num_rows, CHAIN_ROWS):
        tile, chain_rows = zero, min(CHAIN_ROWS, num_rows - chain_row)
        for _ in range(chain_rows // 2):
            tile = add_outer(tile, place, size, load(row, row_last, row_of_slice))
            tile = add_outer(tile, place + stride, size, load(row + row_stride, row_last, row_of_slice))
            place += 2 * stride
            row += 2 * row_stride
        if chain_rows % 2:
            tile = add_outer(tile, place, size, load(row, row_last, row_of_slice))
        if chain_row > 0:
            tile = add(tile, load(chains, last, zero))
        if chain_row + CHAIN_ROWS < num_rows:
            store(chains, last, tile)
        else:
            store(total, last, add(tile, load(total, last, zero)))


@functools.cache
def _accumulator(
    bits: int,
    swapped: bool,
    lanes: int,
    num_vectors: int,
    tile: int,
    has_narrow: bool,
    g_lanes: int,
    copied_lanes: int,
    has_output: bool,
) -> Callable[..., Any]:
    """The loop for slices of ``num_vectors`` and tiles of ``tile`` columns, or also of one less.

    Args:
        copied_lanes: lanes of a vector of the second half of X; 0: it has none.
    """
    size, number = bits // 8, np.float32 if bits == 32 else np.float64
    narrow = tile - 1 if has_narrow else tile
    in_tile, in_narrow = num_vectors * tile, num_vectors * narrow

    num_halves, f_lanes = (2, copied_lanes) if copied_lanes else (1, 1)

    @compiled(bits, swapped, lanes, num_vectors, tile, has_narrow, g_lanes, copied_lanes, has_output)
    def accumulate(rows, widths, tiles, x_at, slices, g_at, output_at, scale, kept_at, keeps_all, beside, arrays):
        """Add the products of some rows to ``stretch`` and ``totals``, and the column sums to ``sums``.

        Args:
            rows: the first one, and the one after the last.
            widths: columns of X and of G.
            tiles: how many have ``tile`` columns, and how many one less, which follow.
            x_at, g_at, output_at, kept_at: the ``memory_of`` matrices. The last one has all rows if ``keeps_all``, else
                a chunk; it is not used where nothing is masked.
            slices: ``Slices.offsets``.
            scale: factor of G where G is masked.
            beside: the ``memory_of`` a matrix of which some rows are the second half of X, their (num_rows,) int32
                index, and (CHUNK_ROWS, f) memory for them.
            arrays: scratch, memory for the column sums of a chain and for a tile; stretch, (halves * slices * tiled
                columns * num_vectors * lanes,) sums in the dtype of X, 0 at first; totals, the same in float64, to
                which ``stretch`` is added after every STRETCH_ROWS rows, or (0,); sums, float64 column sums of G', in
                vectors.
        """
        (first_row, stop_row), (f, h), (num_wide, num_narrow) = rows, widths, tiles
        (x, x_stride), (g, g_stride), (output, output_stride), (kept, kept_stride) = x_at, g_at, output_at, kept_at
        (num_slices, last_slice, row_last), (picked, picked_stride, index, copied) = slices, beside
        scratch, stretch, totals, sums = arrays
        x_lines, g_last = (f * size + LINE_BYTES - 1) // LINE_BYTES, (h - g_lanes) * size
        factor = number(scale)
        line, row_of_slice, vector = zeros(bits, lanes, 1), zeros(bits, lanes, num_vectors), zeros(bits, g_lanes, 1)
        wide_tile, narrow_tile = zeros(bits, lanes, in_tile), zeros(bits, lanes, in_narrow)
        wide_last, narrow_last = (in_tile - 1) * lanes * size, (in_narrow - 1) * lanes * size
        f_vector, f_last = zeros(bits, f_lanes, 1), (f - f_lanes) * size
        num_g_vectors, num_f_vectors = (h + g_lanes - 1) // g_lanes, (f + f_lanes - 1) // f_lanes
        chain = scratch[: num_g_vectors * g_lanes]
        chain_address, stretch_address = chain.ctypes.data, stretch.ctypes.data
        chains = chain_address + len(chain) * size
        for first in range(first_row, stop_row, CHUNK_ROWS):
            stop = min(first + CHUNK_ROWS, stop_row)
            for chain_row in range(first, stop, CHAIN_ROWS):
                for row in range(chain_row, min(chain_row + CHAIN_ROWS, stop)):
                    ahead = x + (row + CHUNK_ROWS) * x_stride
                    for k in range(x_lines):
                        prefetch(ahead + k * LINE_BYTES, line)
                    if num_halves == 2:
                        ahead = picked + np.intp(index[min(row + CHUNK_ROWS, stop_row - 1)]) * picked_stride
                        for k in range(x_lines):
                            prefetch(ahead + k * LINE_BYTES, line)
                        source, target = picked + np.intp(index[row]) * picked_stride, copied[row - first].ctypes.data
                        for k in range(num_f_vectors):
                            at = min(k * f_lanes * size, f_last)
                            store(target + at, 0, load(source + at, 0, f_vector))
                    for k in range(num_g_vectors):
                        at = min(k * g_lanes * size, g_last)
                        gradient = load(g + row * g_stride + at, 0, vector)
                        if has_output:
                            gradient = where_positive(gradient, load(output + row * output_stride + at, 0, vector))
                            gradient = times(gradient, factor)
                            store(kept + (row if keeps_all else row - first) * kept_stride + at, 0, gradient)
                        total = chain_address + k * g_lanes * size
                        store(total, 0, gradient if row == chain_row else add(load(total, 0, vector), gradient))
                for k in range(len(chain)):
                    sums[k] += chain[k]
            if has_output:
                chunk, chunk_stride = kept + (first if keeps_all else 0) * kept_stride, kept_stride
            else:
                chunk, chunk_stride = g + first * g_stride, g_stride
            total = stretch_address
            for half in range(num_halves):
                x_chunk, x_chunk_stride = x + first * x_stride, x_stride
                if half:
                    x_chunk, x_chunk_stride = copied.ctypes.data, f * size
                for k in range(num_slices):
                    if swapped:
                        slice_row, slice_stride, place, stride = chunk, chunk_stride, x_chunk, x_chunk_stride
                    else:
                        slice_row, slice_stride, place, stride = x_chunk, x_chunk_stride, chunk, chunk_stride
                    slice_row += min(k * num_vectors * lanes * size, last_slice)
                    for _ in range(num_wide):
                        _add_chunk(
                            total, wide_last, wide_tile, chains, stop - first, place, stride, size, slice_row,
                            slice_stride, row_last, row_of_slice
                        )  # fmt: skip
                        total += in_tile * lanes * size
                        place += tile * size
                    if has_narrow:
                        for _ in range(num_narrow):
                            _add_chunk(
                                total, narrow_last, narrow_tile, chains, stop - first, place, stride, size, slice_row,
                                slice_stride, row_last, row_of_slice
                            )  # fmt: skip
                            total += in_narrow * lanes * size
                            place += narrow * size
            if len(totals) > 0 and (stop - first_row) % STRETCH_ROWS == 0:
                for k in range(len(totals)):
                    totals[k] += stretch[k]
                    stretch[k] = 0

    return accumulate
