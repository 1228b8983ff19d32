"""The compiled product X^T G of a dense layer's backward pass. Importing this module imports numba.

X and G are tall: a result of a few hundred rows and columns is summed over all nodes. A general library first copies
both into its own layout, as much memory traffic as the product itself. Here a chunk of rows of X and G is read into the
cache once. In the cache, G is masked by the ReLU that follows the layer and its columns are summed for the bias. Then
tiles of the result that fit into the vector registers add up the chunk, one tile after another:

    for each chunk of rows             of G': G where the output is positive; the bias's gradient adds its rows
        for each slice of columns of X
            for each tile of columns of G'
                for each row           tile += outer(G' row, X row), in registers

A float32 that is added to a sum many times its size loses bits. So a tile in registers sums a chain of 32 rows; the
chains of a chunk are added, then the chunks of a stretch of about 2,048 rows, and many stretches are added in float64.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.support.aligned import LINE_BYTES
from fullgnn.kernels.support.threads import even_slices, parallel_for
from fullgnn.kernels.support.vectors import (
    add,
    add_outer,
    compiled,
    load,
    prefetch,
    registers,
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
    """How the columns of X are cut into slices and those of G into tiles; see the head of this file."""

    lanes: int  # lanes of a vector of X
    num_vectors: int  # vectors of a slice
    slices: list[int]  # first column of each; the last may overlap the one before it
    width: int  # columns of a slice
    tile: int  # columns of G in a tile
    num_tiles: int  # as many of them as needed have a column less
    g_lanes: int  # lanes of a vector of G, for mask and sums


def weight_gradient_cpu(
    x: Tensor, g: Tensor, output: Tensor | None, scale: float, masked: Tensor | None
) -> tuple[Tensor, Tensor]:
    """X^T G' (f, h) and the column sums of G' (h,), where G' is ``scale`` G, with 0 where ``output`` is not positive.

    The number of threads does not change a bit of the result.

    Args:
        x: (n, f); g, output: (n, h), h > 0; all float32 or all float64, any row stride.
        masked: (n, h) matrix to which G' is written as well; only with ``output``.
    """
    (num_rows, f), h = x.shape, g.shape[1]
    size = x.element_size()
    shape = _shape(f, h, size)
    num_ranges = max(1, min(MAX_RANGES, num_rows // MIN_ROWS))
    lanes, g_lanes = shape.num_vectors * shape.lanes, shape.g_lanes
    stretches = x.new_zeros(num_ranges, len(shape.slices) * h * lanes)
    many = num_rows > 2 * num_ranges * STRETCH_ROWS
    totals = torch.zeros(num_ranges, stretches.shape[1] if many else 0, dtype=torch.float64)
    sums = torch.zeros(num_ranges, -(-h // g_lanes) * g_lanes, dtype=torch.float64)
    num_narrow = shape.num_tiles * shape.tile - h
    kind = shape.lanes, shape.num_vectors, shape.tile, num_narrow > 0, g_lanes, output is not None
    loop = _accumulator(8 * size, *kind)
    sizes = -(-f * size // LINE_BYTES), len(shape.slices), shape.slices[-1] * size if f else 0
    of_x, of_g, of_output = (_place(matrix) for matrix in (x, g, output))
    last_of_x, last_of_g = (shape.width - shape.lanes) * size, (h - g_lanes) * size
    scratch = x.new_empty(num_ranges, sums.shape[1] + shape.tile * lanes)
    arrays = [part.numpy() for part in (scratch, stretches, totals, sums)]

    def accumulate(task: tuple[int, slice]) -> None:
        index, rows = task
        kept = masked
        if output is not None and masked is None:
            kept = x.new_empty(min(CHUNK_ROWS, rows.stop - rows.start), h)
        loop(
            rows.start,
            rows.stop,
            h,
            shape.num_tiles - num_narrow,
            num_narrow,
            *of_x,
            *sizes,
            last_of_x,
            *of_g,
            last_of_g,
            *of_output,
            scale,
            *_place(kept),
            masked is not None,
            *(part[index] for part in arrays),
        )

    parallel_for(accumulate, enumerate(even_slices(num_rows, num_ranges)))
    total, column_sums = stretches.sum(0), sums.sum(0).to(x.dtype)
    if many:
        total = (totals.sum(0) + total).to(x.dtype)
    total = total.view(len(shape.slices), h, lanes)
    return _joined(total, shape, f).t(), _without_overlap(column_sums, g_lanes, h)


def _place(matrix: Tensor | None) -> tuple[int, int]:
    """Address of the first row, and bytes from one row to the next."""
    if matrix is None:
        return 0, 0
    assert matrix.shape[1] <= 1 or matrix.stride(1) == 1, matrix.stride()
    return matrix.data_ptr(), matrix.stride(0) * matrix.element_size()


@functools.cache
def _shape(f: int, h: int, size: int) -> _Shape:
    num_registers, register_bytes = registers()
    lanes, g_lanes = _lanes(max(f, 1), register_bytes // size), _lanes(h, register_bytes // size)
    num_vectors = max(1, -(-f // lanes))
    most = num_registers // 8
    num_slices = -(-num_vectors // most)
    num_vectors = -(-num_vectors // num_slices)
    width = min(f, num_vectors * lanes)
    slices = [min(k * width, f - width) for k in range(num_slices)] if f else []
    num_tiles = -(-h // (num_registers * 3 // 4 // num_vectors))
    return _Shape(lanes, num_vectors, slices, width, -(-h // num_tiles), num_tiles, g_lanes)


def _lanes(width: int, most: int) -> int:
    """The largest power of two within ``width`` and ``most``."""
    return min(most, 1 << (width.bit_length() - 1))


def _joined(total: Tensor, shape: _Shape, f: int) -> Tensor:
    """Join the slices of X's columns: (num_slices, h, lanes of a slice) to (h, f)."""
    out = total.new_empty(total.shape[1], f)
    for first, part in zip(shape.slices, total):
        out[:, first : first + shape.width] = _without_overlap(part, shape.lanes, shape.width)
    return out


def _without_overlap(vectors: Tensor, lanes: int, width: int) -> Tensor:
    """(..., num_vectors * lanes) to (..., width): the last vector ends at the last column and may repeat some."""
    num_last = width - lanes * (-(-width // lanes) - 1)
    return torch.cat([vectors[..., : width - num_last], vectors[..., vectors.shape[-1] - num_last :]], dim=-1)


@numba.njit(inline="always")
def _add_chunk(total, last, zero, chains, num_rows, g_row, g_stride, x_row, x_stride, x_last, row_of_slice):  # type: ignore[no-untyped-def]
    """Add the outer products of ``num_rows`` rows, chain by chain, to the tile at the address ``total``.

    An iteration takes two rows: the processor predicts the end of 16 iterations, but not of 32.

    Args:
        last: offset of the last vector of the tile, in bytes.
        zero: a tile of zeros.
        chains: address of scratch for a tile: the sum of the chains so far.
        g_row, x_row: addresses of the first row; ``*_stride``: row strides in bytes.
        x_last: offset of the last vector of a row of X, in bytes; ``row_of_slice`` has the type of a row.
    """
    for chain_row in range(0, num_rows, CHAIN_ROWS):
        tile, chain_rows = zero, min(CHAIN_ROWS, num_rows - chain_row)
        for _ in range(chain_rows // 2):
            tile = add_outer(tile, g_row, load(x_row, x_last, row_of_slice))
            tile = add_outer(tile, g_row + g_stride, load(x_row + x_stride, x_last, row_of_slice))
            g_row += 2 * g_stride
            x_row += 2 * x_stride
        if chain_rows % 2:
            tile = add_outer(tile, g_row, load(x_row, x_last, row_of_slice))
        if chain_row > 0:
            tile = add(tile, load(chains, last, zero))
        if chain_row + CHAIN_ROWS < num_rows:
            store(chains, last, tile)
        else:
            store(total, last, add(tile, load(total, last, zero)))


@functools.cache
def _accumulator(
    bits: int, lanes: int, num_vectors: int, tile: int, has_narrow: bool, g_lanes: int, has_output: bool
) -> Callable[..., Any]:
    """The loop for slices of X of ``num_vectors`` and tiles of G of ``tile`` columns, or also of one less."""
    size, number = bits // 8, np.float32 if bits == 32 else np.float64
    narrow = tile - 1 if has_narrow else tile
    in_tile, in_narrow = num_vectors * tile, num_vectors * narrow

    @compiled(bits, lanes, num_vectors, tile, has_narrow, g_lanes, has_output)
    def accumulate(
        first_row,
        stop_row,
        h,
        num_wide,
        num_narrow,
        x,
        x_stride,
        x_lines,
        num_slices,
        x_last_slice,
        x_last,
        g,
        g_stride,
        g_last,
        output,
        output_stride,
        scale,
        kept,
        kept_stride,
        keeps_all,
        scratch,
        stretch,
        totals,
        sums,
    ):
        """Add the products of some rows to ``stretch`` and ``totals``, and the column sums to ``sums``.

        Args:
            num_wide, num_narrow: tiles of ``tile`` columns, then those of one less.
            x, g, output, kept: addresses of matrices; ``*_stride``: row strides in bytes. ``kept`` has all rows if
                ``keeps_all``, else a chunk; it is not used where nothing is masked.
            scale: factor of G where G is masked.
            x_lines: cache lines of a row of X.
            x_last_slice, x_last, g_last: offset of the last slice or vector in a row or slice, in bytes.
            scratch: memory for the column sums of a chain, and for a tile.
            stretch: (num_slices * h * num_vectors * lanes,) sums in the dtype of X, 0 at first.
            totals: the same in float64, to which ``stretch`` is added after every STRETCH_ROWS rows; or (0,).
            sums: float64 column sums of G', in vectors.
        """
        factor = number(scale)
        line, row_of_slice, vector = zeros(bits, lanes, 1), zeros(bits, lanes, num_vectors), zeros(bits, g_lanes, 1)
        wide_tile, narrow_tile = zeros(bits, lanes, in_tile), zeros(bits, lanes, in_narrow)
        wide_last, narrow_last = (in_tile - 1) * lanes * size, (in_narrow - 1) * lanes * size
        num_g_vectors = (h + g_lanes - 1) // g_lanes
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
            for k in range(num_slices):
                x_chunk = x + first * x_stride + min(k * num_vectors * lanes * size, x_last_slice)
                g_chunk = chunk
                for _ in range(num_wide):
                    _add_chunk(
                        total, wide_last, wide_tile, chains, stop - first, g_chunk, chunk_stride, x_chunk, x_stride,
                        x_last, row_of_slice
                    )  # fmt: skip
                    total += in_tile * lanes * size
                    g_chunk += tile * size
                if has_narrow:
                    for _ in range(num_narrow):
                        _add_chunk(
                            total, narrow_last, narrow_tile, chains, stop - first, g_chunk, chunk_stride, x_chunk,
                            x_stride, x_last, row_of_slice
                        )  # fmt: skip
                        total += in_narrow * lanes * size
                        g_chunk += narrow * size
            if len(totals) > 0 and (stop - first_row) % STRETCH_ROWS == 0:
                for k in range(len(totals)):
                    totals[k] += stretch[k]
                    stretch[k] = 0

    return accumulate
