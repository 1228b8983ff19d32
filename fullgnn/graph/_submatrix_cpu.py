"""Compiled loops that take parts of a sparse matrix, or complete its diagonal. Importing this module imports numba.

scipy does the same with one thread and several passes; these loops are most of what a rank does before its first epoch.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from collections.abc import Sequence

import numba
import numpy as np
from scipy.sparse import csr_array

from fullgnn.graph.csr import are_ones, ones
from fullgnn.kernels.support.threads import PIECES, even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled


def cut_columns(matrix: csr_array, ranges: Sequence[slice]) -> list[csr_array]:
    """The matrices of some ranges of the columns, whose columns count from the start of their range.

    Args:
        matrix: (m, n), canonical.
        ranges: disjoint and ascending.
    """
    indptr, indices, data = _arrays(matrix)
    bounds = np.array([(one.start, one.stop) for one in ranges], np.int64).reshape(-1, 2)
    starts = np.zeros((len(ranges), matrix.shape[0] + 1), np.int64)
    pieces = even_slices(matrix.shape[0], PIECES)
    parallel_for(lambda rows: _count_columns(indptr, indices, bounds, starts, rows.start, rows.stop), pieces)
    np.cumsum(starts, axis=1, out=starts)
    found = []
    for (first, stop), new_starts in zip(bounds.tolist(), starts):
        new = _new_arrays(new_starts, matrix)

        def copy(rows: slice, first: int = first, new: tuple[np.ndarray, ...] = new) -> None:
            _copy_columns(indptr, indices, data, first, *new, rows.start, rows.stop)

        parallel_for(copy, pieces)
        found.append(_csr(matrix.dtype, *new, (matrix.shape[0], stop - first)))
    return found


def rows_of(matrix: csr_array, rows: slice) -> csr_array:
    """Consecutive ``rows`` of a canonical ``matrix``, whose arrays are views."""
    indptr = matrix.indptr[rows.start : rows.stop + 1]
    edges = slice(int(indptr[0]), int(indptr[-1]))
    new = indptr - indptr[0], matrix.indices[edges], matrix.data[edges]
    return _csr(matrix.dtype, *new, (len(indptr) - 1, matrix.shape[1]))


def select(matrix: csr_array, rows: np.ndarray | None = None, columns: np.ndarray | None = None) -> csr_array:
    """The matrix of some ``rows`` and some ``columns``, both renumbered from 0.

    Args:
        matrix: (m, n), canonical.
        rows: distinct; None: all.
        columns: ascending; None: all.
    """
    indptr, indices, data = _arrays(matrix)
    rows = np.arange(matrix.shape[0]) if rows is None else rows.astype(np.int64, copy=False)
    starts = np.zeros(len(rows) + 1, np.int64)
    pieces = even_slices(len(rows), PIECES)
    if columns is None:
        starts[1:] = indptr[rows + 1] - indptr[rows]
    else:
        chosen, number = np.zeros(matrix.shape[1], np.uint8), np.zeros(matrix.shape[1], np.int32)
        chosen[columns], number[columns] = 1, np.arange(len(columns), dtype=np.int32)
        parallel_for(lambda some: _count_selected(indptr, indices, rows, chosen, starts, some.start, some.stop), pieces)
    np.cumsum(starts, out=starts)
    new = _new_arrays(starts, matrix)

    def copy(some: slice) -> None:
        if columns is None:
            _copy_rows(indptr, indices, data, rows, *new, some.start, some.stop)
        else:
            _copy_selected(indptr, indices, data, rows, chosen, number, *new, some.start, some.stop)

    parallel_for(copy, pieces)
    return _csr(matrix.dtype, *new, (len(rows), matrix.shape[1] if columns is None else len(columns)))


def with_diagonal(matrix: csr_array, first: int) -> csr_array:
    """``matrix`` with exactly 1 at every place (i, first + i).

    Args:
        matrix: (m, n), canonical.
    """
    indptr, indices, data = _arrays(matrix)
    one = np.ones(1, matrix.dtype).view(data.dtype)
    starts = np.zeros(matrix.shape[0] + 1, np.int64)
    pieces = even_slices(matrix.shape[0], PIECES)
    num_columns = matrix.shape[1]
    parallel_for(
        lambda rows: _count_with_diagonal(indptr, indices, first, num_columns, starts, rows.start, rows.stop), pieces
    )
    np.cumsum(starts, out=starts)
    new = _new_arrays(starts, matrix)
    parallel_for(
        lambda rows: _copy_with_diagonal(indptr, indices, data, first, num_columns, one, *new, rows.start, rows.stop),
        pieces,
    )
    return _csr(matrix.dtype, *new, matrix.shape)


def _arrays(matrix: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row starts, columns and entries, whose bits alone count: few types are compiled. The entries of a pattern are an
    empty array."""
    data = matrix.data[:0] if are_ones(matrix.data) else np.ascontiguousarray(matrix.data)
    return (
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(np.int32, copy=False),
        data.view(f"i{data.itemsize}"),
    )


def _new_arrays(starts: np.ndarray, matrix: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As ``_arrays``, for edges that are still to be copied from ``matrix``."""
    count = int(starts[-1])
    num_values = 0 if are_ones(matrix.data) else count
    return starts, np.empty(count, np.int32), np.empty(num_values, f"i{matrix.dtype.itemsize}")


def _csr(
    dtype: np.dtype, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: tuple[int, int]
) -> csr_array:
    narrow = indptr.astype(np.int32) if len(indices) < 2**31 else indptr
    values = data.view(dtype) if len(data) == len(indices) else ones(len(indices))
    found = csr_array((values, indices, narrow), shape=shape)
    found.has_canonical_format = True  # spares scipy a pass over the indices
    return found


@numba.njit(nogil=True)
def first_from(indices, first, stop, column):
    """The first of the edges ``first`` to ``stop``, whose columns ascend, with at least this ``column``."""
    while first < stop:
        middle = (first + stop) // 2
        if indices[middle] < column:
            first = middle + 1
        else:
            stop = middle
    return first


@compiled()
def _count_columns(indptr, indices, bounds, starts, begin, end):
    for row in range(begin, end):
        for part in range(len(bounds)):
            first = first_from(indices, indptr[row], indptr[row + 1], bounds[part, 0])
            starts[part, row + 1] = first_from(indices, first, indptr[row + 1], bounds[part, 1]) - first


@numba.njit(nogil=True)
def _copy_edges(indices, data, edge, count, first, columns, values, place):
    """Copy ``count`` edges from ``edge`` on to ``place``; their columns then count from ``first``.

    The loops are over slices, for which LLVM sees that no index is negative and copies many edges at a time.
    """
    old_columns, new_columns = indices[edge : edge + count], columns[place : place + count]
    for k in range(len(old_columns)):
        new_columns[k] = old_columns[k] - first
    if len(values):  # no pattern
        old_values, new_values = data[edge : edge + count], values[place : place + count]
        for k in range(len(old_values)):
            new_values[k] = old_values[k]


@compiled()
def _copy_columns(indptr, indices, data, first, starts, columns, values, begin, end):
    for row in range(begin, end):
        place, edge = starts[row], first_from(indices, indptr[row], indptr[row + 1], first)
        _copy_edges(indices, data, edge, starts[row + 1] - place, first, columns, values, place)


@compiled()
def _copy_rows(indptr, indices, data, rows, starts, columns, values, begin, end):
    for row in range(begin, end):
        place = starts[row]
        _copy_edges(indices, data, indptr[rows[row]], starts[row + 1] - place, 0, columns, values, place)


@compiled()
def _count_selected(indptr, indices, rows, chosen, starts, begin, end):
    for row in range(begin, end):
        found = 0
        for column in indices[indptr[rows[row]] : indptr[rows[row] + 1]]:
            found += chosen[np.uint32(column)]
        starts[row + 1] = found


@compiled()
def _copy_selected(indptr, indices, data, rows, chosen, number, starts, columns, values, begin, end):
    """Copy the chosen edges. Every edge is written to the next free place, and only a chosen one is counted, so that no
    branch depends on a choice, which a processor cannot predict."""
    for row in range(begin, end):
        place, stop, edge = np.uint64(starts[row]), np.uint64(starts[row + 1]), np.uint64(indptr[rows[row]])
        while place < stop:
            column = np.uint32(indices[edge])
            columns[place] = number[column]
            if len(values):
                values[place] = data[edge]
            place += np.uint64(chosen[column])
            edge += np.uint64(1)


@compiled()
def _count_with_diagonal(indptr, indices, first, num_columns, starts, begin, end):
    for row in range(begin, end):
        start, stop, diagonal = indptr[row], indptr[row + 1], first + row
        place = first_from(indices, start, stop, diagonal)
        is_stored = place < stop and indices[place] == diagonal
        starts[row + 1] = stop - start + (0 <= diagonal < num_columns and not is_stored)


@compiled()
def _copy_with_diagonal(indptr, indices, data, first, num_columns, one, starts, columns, values, begin, end):
    for row in range(begin, end):
        start, stop, place, diagonal = indptr[row], indptr[row + 1], starts[row], first + row
        edge = first_from(indices, start, stop, diagonal)
        _copy_edges(indices, data, start, edge - start, 0, columns, values, place)
        place += edge - start
        if 0 <= diagonal < num_columns:
            columns[place] = diagonal
            if len(values):
                values[place] = one[0]
            place += 1
        edge += edge < stop and indices[edge] == diagonal
        _copy_edges(indices, data, edge, stop - edge, 0, columns, values, place)
