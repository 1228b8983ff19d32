"""Compiled loops over the non-zeros of a graph that is permuted and cut. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np

from fullgnn.kernels.support.threads import PIECES, even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled


def is_symmetric(indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray | None) -> bool:
    """Whether a square CSR matrix without duplicates equals its transpose, in pattern and weights to the bit.

    The entries above the diagonal and those below it, mirrored, are compared as sets: by the sum of a 64-bit hash of
    each, in one pass. Different sets have equal sums with probability 2^-64; patterns that differ in one entry never
    have.
    """
    bits = np.empty(0, np.uint32) if weight is None else weight.view(f"u{weight.itemsize}")
    pieces = even_slices(len(indptr) - 1, PIECES)
    sums = np.empty(len(pieces), np.uint64)

    def add(piece: int) -> None:
        rows = pieces[piece]
        _skew_sum(indptr, indices, bits, rows.start, rows.stop, sums[piece : piece + 1])

    parallel_for(add, range(len(pieces)))
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


def count_common(indptr: np.ndarray, indices: np.ndarray, other_indptr: np.ndarray, other_indices: np.ndarray) -> int:
    """How many entries two matrices of one shape have in common; the columns of each row ascend."""
    pieces = even_slices(len(indptr) - 1, PIECES)
    counts = np.zeros(len(pieces), np.int64)

    def count(piece: int) -> None:
        rows = pieces[piece]
        _count_common(indptr, indices, other_indptr, other_indices, rows.start, rows.stop, counts[piece : piece + 1])

    parallel_for(count, range(len(pieces)))
    return int(counts.sum())


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
def _count(indptr, indices, first, chosen, bounds, nnz, loops, seen, begin, end):
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
