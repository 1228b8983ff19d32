"""The compiled loop of :mod:`fullgnn.kernels.spmm.beside`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import functools
from collections.abc import Callable

import numpy as np

from fullgnn.kernels.spmm import _blocked_cpu
from fullgnn.kernels.spmm._blocked_cpu import LOOKAHEAD_BYTES, PADDING, sum_of_row
from fullgnn.kernels.support.vectors import add, add_outer, compiled_with, load, store, times, where_positive, zeros

compiled = compiled_with(_blocked_cpu)
"""``compiled`` for loops that call functions of these modules."""


@functools.cache
def multiplier_beside(
    bits: int,
    x_lanes: int,
    num_x_vectors: int,
    lanes: int,
    num_vectors: int,
    tile_rows: int,
    column_type: str,
    weighted: bool,
) -> Callable[..., None]:
    """The loop for slices of X of ``num_x_vectors``, slices of W of ``num_vectors``, and tiles of so many rows of Y."""
    size, in_tile = bits // 8, tile_rows * num_vectors
    lookahead = min(PADDING, LOOKAHEAD_BYTES // (num_x_vectors * x_lanes * size))
    x_slice, w_slice = num_x_vectors * x_lanes * size, num_vectors * lanes * size

    @compiled(bits, x_lanes, num_x_vectors, lanes, num_vectors, tile_rows, column_type, weighted)
    def multiply(edges, values, own, rows, x_at, x_slices, ax, weight_at, w_slices, y, epilogue, own_rows, scratch):
        """Compute some rows of A X and of Y, at least ``tile_rows`` of them.

        The last block and the last tile end with the last row: some rows are computed twice, with the same result.

        Args:
            edges, values: starts, columns and values of a ``ColumnBlocks`` of one block; ``values`` is None for a
                pattern.
            own: (num_rows,) int32, the row of X beside each row of A X.
            rows: the first one, and the one after the last.
            x_at, weight_at: the ``memory_of`` of X (n, f), and of W (2 f, columns of Y).
            x_slices, w_slices: ``Slices.offsets`` of X and of W.
            ax, y: addresses of A X (num_rows, f) and of Y; they are contiguous, as W is.
            epilogue: (num_rows,) factors of the rows of A, or (0,) for none; address of b or 0 for none; whether there
                is a ReLU.
            own_rows: (rows of a block, f) memory for the rows ``own`` of a block; it has no more than there are.
            scratch: memory for a tile, or for the rounding errors of a row.
        """
        (starts, columns), (first_row, stop_row), (scale, bias, relu) = edges, rows, epilogue
        (x, x_stride), (num_x_slices, last_x_slice, x_last) = x_at, x_slices
        (weight, w_stride), (num_w_slices, last_w_slice, w_last) = weight_at, w_slices
        block_rows, f = own_rows.shape
        x_zero, zero, row_zero = (
            zeros(bits, x_lanes, num_x_vectors),
            zeros(bits, lanes, in_tile),
            zeros(bits, lanes, num_vectors),
        )
        ahead, ax_stride, temporary, beside = np.uint64(lookahead), f * size, scratch.ctypes.data, own_rows.ctypes.data
        tile_last, missing_last = (in_tile - 1) * lanes * size, (num_x_vectors - 1) * x_lanes * size
        for block in range(first_row, stop_row, block_rows):
            begin = min(block, stop_row - block_rows)
            for k in range(num_x_slices):
                at = min(k * x_slice, last_x_slice)
                for row in range(begin, begin + block_rows):
                    edge, end, place = np.uint64(starts[row]), np.uint64(starts[row + 1]), ax + row * ax_stride + at
                    total = sum_of_row(
                        edge, end, ahead, columns, values, x + at, x_stride, x_last, x_zero, place, False, temporary,
                        missing_last
                    )  # fmt: skip
                    if len(scale) > 0:
                        total = times(total, scale[row])
                    store(place, x_last, total)
                    source = x + np.intp(own[row]) * x_stride + at
                    store(beside + (row - begin) * ax_stride + at, x_last, load(source, x_last, x_zero))
            for k in range(num_w_slices):
                at = min(k * w_slice, last_w_slice)
                for first in range(0, block_rows, tile_rows):
                    row = min(first, block_rows - tile_rows)
                    tile, w_row = zero, weight + at
                    place = ax + (begin + row) * ax_stride
                    for _ in range(f):
                        tile = add_outer(tile, place, ax_stride, load(w_row, w_last, row_zero))
                        place += size
                        w_row += w_stride
                    place = beside + row * ax_stride
                    for _ in range(f):
                        tile = add_outer(tile, place, ax_stride, load(w_row, w_last, row_zero))
                        place += size
                        w_row += w_stride
                    store(temporary, tile_last, tile)
                    for i in range(tile_rows):
                        result = load(temporary + i * w_slice, (num_vectors - 1) * lanes * size, row_zero)
                        if bias != 0:
                            result = add(result, load(bias + at, w_last, row_zero))
                        if relu:
                            result = where_positive(result, result)
                        store(y + (begin + row + i) * w_stride + at, w_last, result)

    return multiply
