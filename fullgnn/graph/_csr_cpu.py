"""Compiled loops over the entries of CSR matrices: compare, permute, count, cut. Importing this module imports numba.

scipy does the same with one thread and several passes; these loops are most of what a rank does before its first epoch.
The functions above call the loops below for some rows at a time, on all threads.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from scipy.sparse import csr_array

from fullgnn.graph.csr import are_ones, csr_from_arrays, ones
from fullgnn.kernels.support.process import PIECES, even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled


def over_rows(loop: Callable[..., object], num_rows: int, *args: Any) -> None:
    """Call ``loop(*args, begin, end)`` for pieces of the rows, which threads take one after the other."""
    parallel_for(lambda rows: loop(*args, rows.start, rows.stop), even_slices(num_rows, PIECES))


def over_pieces(loop: Callable[..., object], num_rows: int, args: Sequence[Any], *results: np.ndarray) -> None:
    """Call ``loop(*args, begin, end, *results_of_piece)`` for as many pieces of the rows as each of ``results``
    is long.

    Args:
        results: (num_pieces, ...) each; a piece writes to its own part.
    """
    pieces = even_slices(num_rows, len(results[0]))

    def call(piece: int) -> None:
        loop(*args, pieces[piece].start, pieces[piece].stop, *(result[piece] for result in results))

    parallel_for(call, range(len(pieces)))


def is_symmetric(indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray | None) -> bool:
    """Whether a square CSR matrix without duplicates equals its transpose, in pattern and weights to the bit.

    The entries above the diagonal and those below it, mirrored, are compared as sets: by the sum of a 64-bit hash of
    each, in one pass. Different sets have equal sums with probability 2^-64; patterns that differ in one entry never
    have.
    """
    bits = np.empty(0, np.uint32) if weight is None else weight.view(f"u{weight.itemsize}")
    sums = np.empty((PIECES, 1), np.uint64)
    over_pieces(_skew_sum, len(indptr) - 1, (indptr, indices, bits), sums)
    return int(sums.sum()) == 0  # modulo 2^64


def permuted(
    indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray | None, perm: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The CSR arrays of a square matrix under other numbers: new row and column i is the old one ``perm[i]``.

    Args:
        perm: (num_rows,) int64.

    Returns:
        indptr int64, indices int32 ascending within a row, and the weights.
    """
    new_id = np.empty(len(perm), np.int32)
    new_id[perm] = np.arange(len(perm), dtype=np.int32)
    starts = np.zeros(len(perm) + 1, np.int64)
    np.cumsum(np.diff(indptr)[perm], out=starts[1:])
    columns = np.empty(len(indices), np.int32)
    given = np.empty(0, np.float32) if weight is None else weight
    values = np.empty_like(given)
    over_rows(_permute, len(perm), indptr, indices, given, perm, new_id, starts, columns, values)
    return starts, columns, None if weight is None else values


def count_rows(
    indptr: np.ndarray, indices: np.ndarray, first: int, chosen: np.ndarray, bounds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count the non-zeros of one block row, and find the columns that it has.

    Args:
        indptr: (num_rows + 1,) int64, from 0; indices: the GLOBAL columns of these rows, ascending within a row.
        first: GLOBAL number of the first row.
        chosen: (num_rows,) bool, rows that are counted separately too.
        bounds: (b + 1,) int64, GLOBAL first rows of the block rows.

    Returns:
        (2, b) int64 non-zeros by block, of all rows and of the chosen ones; (2,) int64 self-loops of both; and
        (2, num_nodes) bool, whether any row, and any chosen row, has each column.
    """
    nnz, loops = np.zeros((PIECES, 2, len(bounds) - 1), np.int64), np.zeros((PIECES, 2), np.int64)
    seen = np.zeros((2, int(bounds[-1])), bool)  # threads write nothing but True
    over_pieces(_count, len(indptr) - 1, (indptr, indices, first, chosen, bounds, seen), nnz, loops)
    return nnz.sum(axis=0), loops.sum(axis=0), seen


def count_common(indptr: np.ndarray, indices: np.ndarray, other_indptr: np.ndarray, other_indices: np.ndarray) -> int:
    """How many entries two matrices of one shape have in common; the columns of each row ascend."""
    counts = np.zeros((PIECES, 1), np.int64)
    over_pieces(_count_common, len(indptr) - 1, (indptr, indices, other_indptr, other_indices), counts)
    return int(counts.sum())


def cut_columns(matrix: csr_array, ranges: Sequence[slice]) -> list[csr_array]:
    """The matrices of some ranges of the columns, whose columns count from the start of their range.

    Args:
        matrix: (m, n), canonical.
        ranges: disjoint and ascending.
    """
    indptr, indices, data = _arrays(matrix)
    bounds = np.array([(columns.start, columns.stop) for columns in ranges], np.int64).reshape(-1, 2)
    counts = np.zeros((len(ranges), matrix.shape[0] + 1), np.int64)
    over_rows(_count_columns, matrix.shape[0], indptr, indices, bounds, counts)
    return [
        _copied(matrix, count, stop - first, _copy_columns, indptr, indices, data, first)
        for (first, stop), count in zip(bounds.tolist(), counts)
    ]


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
    edges = _arrays(matrix)
    indptr, indices, _ = edges
    rows = np.arange(matrix.shape[0]) if rows is None else rows.astype(np.int64, copy=False)
    counts = np.zeros(len(rows) + 1, np.int64)
    if columns is None:
        counts[1:] = indptr[rows + 1] - indptr[rows]
        return _copied(matrix, counts, matrix.shape[1], _copy_rows, *edges, rows)
    chosen, number = np.zeros(matrix.shape[1], np.uint8), np.zeros(matrix.shape[1], np.int32)
    chosen[columns], number[columns] = 1, np.arange(len(columns), dtype=np.int32)
    over_rows(_count_selected, len(rows), indptr, indices, rows, chosen, counts)
    return _copied(matrix, counts, len(columns), _copy_selected, *edges, rows, chosen, number)


def with_diagonal(matrix: csr_array, first: int) -> csr_array:
    """``matrix`` with exactly 1 at every place (i, first + i).

    Args:
        matrix: (m, n), canonical.
    """
    indptr, indices, data = _arrays(matrix)
    unit = np.ones(1, matrix.dtype).view(data.dtype)
    num_rows, num_columns = matrix.shape
    counts = np.zeros(num_rows + 1, np.int64)
    over_rows(_count_with_diagonal, num_rows, indptr, indices, first, num_columns, counts)
    return _copied(matrix, counts, num_columns, _copy_with_diagonal, indptr, indices, data, first, num_columns, unit)


def _arrays(matrix: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row starts, columns and entries, whose bits alone count: few types are compiled. The entries of a pattern are an
    empty array."""
    data = matrix.data[:0] if are_ones(matrix.data) else np.ascontiguousarray(matrix.data)
    return (
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(np.int32, copy=False),
        data.view(f"i{data.itemsize}"),
    )


def _copied(
    matrix: csr_array, counts: np.ndarray, num_columns: int, copy: Callable[..., object], *args: Any
) -> csr_array:
    """A matrix of edges of ``matrix``, which the loop ``copy`` writes to their places.

    Args:
        counts: (num_rows + 1,) int64, 0 and the number of edges of each row; their running sum takes its place.
        args: of ``copy``, before the arrays of the new matrix.
    """
    np.cumsum(counts, out=counts)
    count = int(counts[-1])
    num_values = 0 if are_ones(matrix.data) else count
    new = counts, np.empty(count, np.int32), np.empty(num_values, f"i{matrix.dtype.itemsize}")
    over_rows(copy, len(counts) - 1, *args, *new)
    return _csr(matrix.dtype, *new, (len(counts) - 1, num_columns))


def _csr(
    dtype: np.dtype, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: tuple[int, int]
) -> csr_array:
    values = data.view(dtype) if len(data) == len(indices) else ones(len(indices))
    return csr_from_arrays(values, indices, indptr, shape)


@compiled()
def _count_common(indptr, indices, other_indptr, other_indices, begin, end, counts):
    total = np.int64(0)
    for row in range(begin, end):
        edge, other, stop = indptr[row], other_indptr[row], other_indptr[row + 1]
        while edge < indptr[row + 1] and other < stop:
            column, other_column = indices[edge], other_indices[other]
            total += column == other_column
            edge += column <= other_column
            other += other_column <= column
    counts[0] = total


@compiled()
def _skew_sum(indptr, indices, bits, begin, end, sums):
    """Write to ``sums`` the sum of the hashes of the entries above the diagonal, minus that of those below it."""
    total = np.uint64(0)
    for row in range(begin, end):
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            if column > row:
                entry = mixed(np.uint64(row) << np.uint64(32) | np.uint64(column))
                total += entry if len(bits) == 0 else mixed(entry ^ np.uint64(bits[edge]))
            elif column < row:
                entry = mixed(np.uint64(column) << np.uint64(32) | np.uint64(row))
                total -= entry if len(bits) == 0 else mixed(entry ^ np.uint64(bits[edge]))
    sums[0] = total


@numba.njit(nogil=True)
def mixed(word):
    """A 64-bit hash, equal for equal words alone: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA'14)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled()
def _permute(indptr, indices, weight, perm, new_id, starts, columns, values, begin, end):
    for row in range(begin, end):
        old, start, stop = perm[row], starts[row], starts[row + 1]
        shift = indptr[old] - start
        for edge in range(start, stop):
            columns[edge] = new_id[indices[edge + shift]]
        if len(weight) == 0:
            columns[start:stop].sort()
            continue
        order = np.argsort(columns[start:stop])
        columns[start:stop] = columns[start:stop][order]
        values[start:stop] = weight[start + shift : stop + shift][order]


@compiled()
def _count(indptr, indices, first, chosen, bounds, seen, begin, end, nnz, loops):
    for row in range(begin, end):
        part, stop, start = 0, bounds[1], indptr[row]  # where the edges of the part begin
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            while column >= stop:
                nnz[0, part] += edge - start
                nnz[1, part] += chosen[row] * (edge - start)
                part, start = part + 1, edge
                stop = bounds[part + 1]
            seen[0, column] = True
            if column == first + row:
                loops[0] += 1
                loops[1] += chosen[row]
        nnz[0, part] += indptr[row + 1] - start
        nnz[1, part] += chosen[row] * (indptr[row + 1] - start)
        if chosen[row]:
            for edge in range(indptr[row], indptr[row + 1]):
                seen[1, indices[edge]] = True


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
        count = 0
        for column in indices[indptr[rows[row]] : indptr[rows[row] + 1]]:
            count += chosen[np.uint32(column)]
        starts[row + 1] = count


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
def _copy_with_diagonal(indptr, indices, data, first, num_columns, unit, starts, columns, values, begin, end):
    for row in range(begin, end):
        start, stop, place, diagonal = indptr[row], indptr[row + 1], starts[row], first + row
        edge = first_from(indices, start, stop, diagonal)
        _copy_edges(indices, data, start, edge - start, 0, columns, values, place)
        place += edge - start
        if 0 <= diagonal < num_columns:
            columns[place] = diagonal
            if len(values):
                values[place] = unit[0]
            place += 1
        edge += edge < stop and indices[edge] == diagonal
        _copy_edges(indices, data, edge, stop - edge, 0, columns, values, place)
