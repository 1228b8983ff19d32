"""The compiled loops of :mod:`fullgnn.kernels.spmm.blocked`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import functools
from collections.abc import Callable

import numba
import numpy as np

from fullgnn.kernels.support.vectors import (
    add,
    add_rounding_errors,
    compiled,
    load,
    prefetch,
    rounding_error,
    store,
    times,
    unpredictable,
    where_positive,
    zeros,
)

CHAIN_EDGES = 32  # edges that are added one after the other; the first chain of a row has up to 63
GROUP_EDGES = 16 * CHAIN_EDGES  # edges of 16 chains, added one after the other; a row's first group has one chain more
LOOKAHEAD_BYTES = 1 << 13  # bytes of X from the row that is added to the row that is prefetched
OUT_AHEAD = 2  # rows from a row to the one whose place in the output is prefetched
PADDING = 32  # column ids behind the last one, which ``multiply`` may read but never uses


@numba.njit(inline="always")
def _plus_edge(total, edge, ahead, columns, values, base, x_stride, last):
    """``total`` plus the row of X of an edge, times its value; prefetches the row of the edge ``ahead`` of it."""
    prefetch(base + np.intp(columns[edge + ahead]) * x_stride, total)
    neighbour = load(base + np.intp(columns[edge]) * x_stride, last, total)
    if values is not None:
        neighbour = times(neighbour, values[edge])
    return add(total, neighbour)


@numba.njit(inline="always")
def sum_of_row(edge, end, ahead, columns, values, base, x_stride, last, zero, place, summed, missing, last_missing):
    """The sum of the rows of X of the edges ``edge`` to ``end``, added to the sum in the output if ``summed``.

    A float32 that is added to a sum many times its size loses bits, so no sum has many addends: edges form chains and
    chains form groups. When groups are added, the rounding errors are summed separately and added at the end. While the
    edges pass, what is seldom needed stays in memory: AVX2 has no registers for the sum in the output and the rounding
    errors beside a chain and a group.

    Edge numbers are unsigned: for a signed index, numba checks at every edge whether it counts from the end.

    Args:
        ahead: edges from the one that is added to the one whose row of X is prefetched.
        base: address of the first column of X; x_stride: bytes from one row of X to the next.
        last: offset of the last vector of a row, in bytes.
        zero: a row of zeros.
        place: address of the row in the output, where sums of a row of many edges are kept.
        missing: address of memory for the rounding errors; last_missing: offset of its last vector, in bytes.
    """
    step, chain, group = np.uint64(1), np.uint64(CHAIN_EDGES), np.uint64(GROUP_EDGES)
    group_sum = zero
    end_of_chain = end if end - edge < chain + chain else edge + (end - edge) % chain + chain
    first_group = end_of_group = end_of_chain + group
    while edge < end_of_chain:
        group_sum = _plus_edge(group_sum, edge, ahead, columns, values, base, x_stride, last)
        edge = unpredictable(edge + step)
    while edge < end:
        chain_sum = zero
        for _ in range(CHAIN_EDGES):
            chain_sum = _plus_edge(chain_sum, edge, ahead, columns, values, base, x_stride, last)
            edge += step
        group_sum = add(group_sum, chain_sum)
        if edge == end_of_group:
            total = load(place, last, zero) if summed else zero
            error = load(missing, last_missing, zero) if edge > first_group else zero
            store(missing, last_missing, add(error, rounding_error(total, group_sum)))
            store(place, last, add(total, group_sum))
            group_sum, summed = zero, True
            end_of_group += group
    total = load(place, last, zero) if summed else zero
    if end <= first_group:
        total = add(total, group_sum)
    else:
        error = add(load(missing, last_missing, zero), rounding_error(total, group_sum))
        total = add_rounding_errors(add(total, group_sum), error)
    return total


@functools.cache
def multiplier(bits: int, lanes: int, num_vectors: int, column_type: str, weighted: bool) -> Callable[..., None]:
    """The product for rows of ``RowVectors(bits, lanes, num_vectors)`` and a ``ColumnBlocks`` of these types."""
    row_bytes = num_vectors * lanes * bits // 8
    lookahead = min(PADDING, LOOKAHEAD_BYTES // row_bytes)  # edges; more for narrow rows, since each takes less time

    @compiled(bits, lanes, num_vectors, column_type, "weighted" if weighted else "pattern")
    def multiply(blocks, values, rows, x_at, out_at, columns_of_slice, epilogue, accumulate, scratch):
        """Compute some rows, block after block: each block adds to the sums that earlier blocks left in the output.

        Args:
            blocks, values: those of the ``ColumnBlocks``; ``values`` is None for a pattern.
            rows: of the matrix, and the first one to compute and the one after the last.
            x_at, out_at: the ``memory_of`` of X and of the output.
            columns_of_slice: offsets of the slice in a row, and of the last vector in the slice, in bytes.
            epilogue: (num_rows,) scale, or (0,) for none; address of the bias, or 0 for none; whether there is a ReLU.
            scratch: (num_vectors * lanes,) memory for the rounding errors.
        """
        (num_blocks, width, starts, columns), (num_rows, first_row, stop_row) = blocks, rows
        (x, x_stride), (out, out_stride), (first, last) = x_at, out_at, columns_of_slice
        scale, bias, relu = epilogue
        zero = zeros(bits, lanes, num_vectors)
        ahead = np.uint64(lookahead)
        missing, last_missing = scratch.ctypes.data, (num_vectors - 1) * lanes * bits // 8
        for block in range(num_blocks):
            base = x + block * width * x_stride + first
            keep = accumulate or block > 0
            done = block == num_blocks - 1
            scaled, biased, rectified = done and len(scale) > 0, done and bias != 0, done and relu
            for row in range(first_row, stop_row):
                edge, end = np.uint64(starts[block * num_rows + row]), np.uint64(starts[block * num_rows + row + 1])
                place = out + row * out_stride + first
                prefetch(place + OUT_AHEAD * out_stride, zero)
                total = sum_of_row(
                    edge, end, ahead, columns, values, base, x_stride, last, zero, place, keep, missing, last_missing
                )
                if scaled:
                    total = times(total, scale[row])
                if biased:
                    total = add(total, load(bias + first, last, zero))
                if rectified:
                    total = where_positive(total, total)
                store(place, last, total)

    return multiply


@numba.njit(nogil=True)
def _end_of_run(columns, edge, stop, first, width, end):
    """The first of the edges ``edge`` to ``stop`` of a block of columns ``first`` to ``first + width`` whose column is
    at least ``end``."""
    if first + width <= end:
        return stop
    while edge < stop and columns[edge] + first < end:
        edge += 1
    return edge


@functools.cache
def regrouper(column_type: str, new_column_type: str, value_type: str) -> Callable[..., None]:
    """The loop that copies one ``ColumnBlocks`` to another, for these types."""

    @compiled(column_type, new_column_type, value_type)
    def regroup(num_rows, num_blocks, width, starts, columns, values, new_width, new_starts, new_columns, new_values):
        """Copy all edges into blocks of ``new_width`` columns: the first pass counts the edges, the second places them.

        Args:
            new_starts: (new_num_blocks * num_rows + 2,) zeros; the last element is meaningless afterwards.
        """
        for places in (False, True):
            for row in range(num_rows):
                new_block, end = 0, new_width  # of the new block, which ascends with the columns of a row
                for block in range(num_blocks):
                    first, edge = block * width, starts[block * num_rows + row]
                    stop = starts[block * num_rows + row + 1]
                    while edge < stop:
                        while columns[edge] + first >= end:
                            new_block, end = new_block + 1, end + new_width
                        run_stop = _end_of_run(columns, edge, stop, first, width, end)
                        # Place of the next edge of this row and block; at the end, the start of the next row's edges.
                        next_place = new_block * num_rows + row + 1
                        if places:
                            place, shift = new_starts[next_place], first - end + new_width
                            run, new_run = columns[edge:run_stop], new_columns[place : place + run_stop - edge]
                            for k in range(len(run)):
                                new_run[k] = run[k] + shift
                            if values is not None:
                                new_values[place : place + run_stop - edge] = values[edge:run_stop]
                            new_starts[next_place] = place + run_stop - edge
                        else:
                            new_starts[next_place + 1] += run_stop - edge
                        edge = run_stop
            if not places:
                for k in range(2, len(new_starts)):
                    new_starts[k] += new_starts[k - 1]

    return regroup
