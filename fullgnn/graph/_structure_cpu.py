"""Compiled loops over the non-zeros of a graph that is permuted and cut. Importing this module imports numba."""

import numpy as np

from fullgnn.kernels.support.threads import even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled

PIECES = 64
"""Into how many pieces the rows are cut for the threads."""


def is_symmetric(indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray | None) -> bool:
    """Whether a square CSR matrix with ascending columns equals its transpose, in pattern and weights to the bit."""
    values = np.empty(0, np.float32) if weight is None else weight
    return bool(_is_symmetric(indptr, indices, values, indptr[:-1].copy()))


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

    def permute(rows: slice) -> None:
        _permute(indptr, indices, given, perm, new_id, starts, columns, values, rows.start, rows.stop)

    parallel_for(permute, even_slices(len(perm), PIECES))
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
    pieces = even_slices(len(indptr) - 1, PIECES)
    nnz = np.zeros((len(pieces), 2, len(bounds) - 1), np.int64)
    loops = np.zeros((len(pieces), 2), np.int64)
    seen = np.zeros((2, int(bounds[-1])), bool)  # threads write nothing but True

    def count(piece: int) -> None:
        rows = pieces[piece]
        _count(indptr, indices, first, chosen, bounds, nnz[piece], loops[piece], seen, rows.start, rows.stop)

    parallel_for(count, range(len(pieces)))
    return nnz.sum(axis=0), loops.sum(axis=0), seen


@compiled()
def _is_symmetric(indptr, indices, weight, cursor):
    """Visit the entries by row. The entries (i, j) of one j come in ascending i, and must meet row j from its start."""
    for row in range(len(indptr) - 1):
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            place = cursor[column]
            if place >= indptr[column + 1] or indices[place] != row:
                return False
            if len(weight) > 0 and weight[place] != weight[edge]:
                return False
            cursor[column] = place + 1
    return True


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
def _count(indptr, indices, first, chosen, bounds, nnz, loops, seen, begin, end):
    for row in range(begin, end):
        part = 0
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            while column >= bounds[part + 1]:
                part += 1
            nnz[0, part] += 1
            loops[0] += column == first + row
            seen[0, column] = True
            if chosen[row]:
                nnz[1, part] += 1
                loops[1] += column == first + row
                seen[1, column] = True
