"""Compiled passes over the entries and the features of a graph. Importing this module imports numba.

No pass sorts or transposes the entries: what a node's out-neighbours are is gathered by adding to the node's place
while the rows are read. So the largest temporary array has 16 bytes a node.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np
import torch

from fullgnn.graph import _csr_cpu
from fullgnn.graph._csr_cpu import mixed, over_pieces, over_rows
from fullgnn.kernels.support.process import PIECES
from fullgnn.kernels.support.vectors import compiled_with

compiled = compiled_with(_csr_cpu)
"""``compiled`` for loops that call functions of these modules."""

NUM_SUMS = 3
"""What ``read_rows`` counts: self-loops, entries whose two ends have a label, and of these, those with equal labels."""


def read_rows(
    indptr: np.ndarray, indices: np.ndarray, wanted: np.ndarray, labels: np.ndarray, num_classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One pass over the rows: hashes of what nodes read, self-loops, and how alike the labels of neighbours are.

    Args:
        wanted: (num_nodes,) bool, the nodes that get a hash.
        labels: (num_nodes,) int32, -1 if unknown; empty: there are no classes.

    Returns:
        (num_nodes, 2) uint64, a 128-bit hash of the set of in-neighbours, 0 where it is not wanted;
        (NUM_SUMS,) int64;
        (2, num_classes) int64, of the entries with two labels, those into and those out of each class;
        (2,) float64, over the nodes that read a labelled node: the sum of their shares of equal labels, and their
        number. Self-loops are in none of the last three.
    """
    num_pieces = PIECES if num_classes < 1 << 12 else torch.get_num_threads()
    hashes = np.zeros((len(wanted), 2), np.uint64)
    sums = np.zeros((num_pieces, NUM_SUMS), np.int64)
    of_class = np.zeros((num_pieces, 2, num_classes), np.int64)
    of_nodes = np.zeros((num_pieces, 2))
    over_pieces(_read_rows, len(indptr) - 1, (indptr, indices, wanted, labels, hashes), sums, of_class, of_nodes)
    return hashes, sums.sum(axis=0), of_class.sum(axis=0), of_nodes.sum(axis=0)


def read_columns(indptr: np.ndarray, indices: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """What is known of the columns, without a transpose; each thread reads all rows for some of the columns.

    The reverse of entry (i, j) is looked for in row j, at a place that moves on as i grows: all of these places
    together move once over the entries.

    Returns:
        (num_nodes,) int32, how many rows have each column;
        (num_nodes, 2) uint64, a 128-bit hash of the set of these rows, 0 where it is not wanted;
        the number of entries off the diagonal whose reverse is an entry too.
    """
    num_nodes = len(wanted)
    degree, hashes, place = np.zeros(num_nodes, np.int32), np.zeros((num_nodes, 2), np.uint64), indptr[:-1].copy()
    mutual = np.zeros((torch.get_num_threads(), 1), np.int64)
    over_pieces(_read_columns, num_nodes, (indptr, indices, wanted, degree, hashes, place), mutual)
    return degree, hashes, int(mutual.sum())


def component_sizes(indptr: np.ndarray, indices: np.ndarray, symmetric: bool, num_joined: int) -> np.ndarray:
    """Numbers of nodes of the weak components, in no order; by union-find, which needs no transpose.

    Args:
        symmetric: whether the entries below the diagonal are enough.
        num_joined: nodes with an entry in their row or column, after whose last union the pass ends.
    """
    parent = np.arange(len(indptr) - 1, dtype=np.int32)
    _join(indptr, indices, symmetric, max(0, num_joined - 1), parent)
    sizes = np.bincount(parent)
    return sizes[sizes > 0]


def hashes_of_rows(bits: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """(num_rows, 2) uint64, a 128-bit hash of each row, 0 where it is not wanted or all numbers are 0.

    Args:
        bits: (num_rows, num_columns), the floating-point numbers as unsigned integers.
    """
    hashes = np.zeros((len(bits), 2), np.uint64)
    magnitude = np.uint64((1 << (8 * bits.itemsize - 1)) - 1)
    over_rows(_hash_rows, len(bits), bits, wanted, magnitude, hashes)
    return hashes


def hashes_of_sparse_rows(indptr: np.ndarray, indices: np.ndarray, bits: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """``hashes_of_rows`` of a CSR matrix, whose numbers are not 0: the same as of the dense one."""
    hashes = np.zeros((len(wanted), 2), np.uint64)
    over_rows(_hash_sparse_rows, len(wanted), indptr, indices, bits, wanted, hashes)
    return hashes


def read_sparse_features(indices: np.ndarray, data: np.ndarray, num_columns: int) -> np.ndarray:
    """The sums of ``read_features``, with a shift of 0, over the stored numbers of a sparse matrix.

    Args:
        indices: the column of each number.
    """
    sums = np.zeros((5, num_columns))
    sums[0], sums[1] = np.inf, -np.inf
    _read_sparse_features(indices, data, sums)
    return sums


def read_features(features: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, int]:
    """Sums over some rows of the features.

    Args:
        features: (num_rows, num_columns) float32 or float64.
        shift: (num_columns,) float64, subtracted before sums are taken, so that these are exact enough.

    Returns:
        (5, num_columns) float64: the least and the largest number of each column, the sum and the sum of squares of the
        shifted numbers, and how many are not 0; and the number of rows of zeros.
    """
    sums = np.zeros((torch.get_num_threads(), 5, features.shape[1]))
    sums[:, 0], sums[:, 1] = np.inf, -np.inf
    empty = np.zeros((len(sums), 1), np.int64)
    over_pieces(_read_features, len(features), (features, shift), sums, empty)
    ends = sums[:, 0].min(axis=0), sums[:, 1].max(axis=0)
    return np.concatenate([np.stack(ends), sums[:, 2:].sum(axis=0)]), int(empty.sum())


def reads_of_parts(indptr: np.ndarray, indices: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """(num_parts, num_nodes) bool, whether the row of each node has a column of each part.

    Args:
        bounds: (num_parts + 1,) int64, the first nodes of the parts.
    """
    seen = np.zeros((len(bounds) - 1, len(indptr) - 1), bool)
    over_rows(_reads_of_parts, len(indptr) - 1, indptr, indices, bounds, seen)
    return seen


@numba.njit(nogil=True)
def _mixed_again(word):
    """Another such hash: the finalizer of MurmurHash3 (Appleby), of words that are moved by a constant."""
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return word ^ (word >> np.uint64(33))


@compiled()
def _read_rows(indptr, indices, wanted, labels, hashes, begin, end, sums, of_class, of_nodes):
    loops, labelled, equal = np.int64(0), np.int64(0), np.int64(0)
    share, num_nodes = 0.0, 0.0
    for row in range(begin, end):
        start, stop = indptr[row], indptr[row + 1]
        if wanted[row]:
            first, second = np.uint64(0), np.uint64(0)
            for edge in range(start, stop):
                word = np.uint64(indices[edge] + 1)
                first += mixed(word)
                second += _mixed_again(word)
            hashes[row, 0], hashes[row, 1] = first, second
        own = labels[row] if len(labels) else np.int32(-1)
        if own < 0:
            for edge in range(start, stop):
                loops += indices[edge] == row
            continue
        known, alike = np.int64(0), np.int64(0)
        for edge in range(start, stop):
            column = indices[edge]
            if column == row:
                loops += 1
                continue
            other = labels[column]
            if other >= 0:
                known += 1
                alike += other == own
                of_class[1, other] += 1
        of_class[0, own] += known
        labelled += known
        equal += alike
        if known:
            share += alike / known
            num_nodes += 1.0
    sums[0], sums[1], sums[2] = loops, labelled, equal
    of_nodes[0], of_nodes[1] = share, num_nodes


@compiled()
def _read_columns(indptr, indices, wanted, degree, hashes, place, begin, end, mutual):
    num_mutual = np.int64(0)
    for row in range(len(indptr) - 1):
        word = np.uint64(row + 1)
        first, second = mixed(word), _mixed_again(word)
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            if column < begin:
                continue
            if column >= end:
                break
            degree[column] += 1
            if wanted[column]:
                hashes[column, 0] += first
                hashes[column, 1] += second
            at, stop = place[column], indptr[column + 1]
            while at < stop and indices[at] < row:
                at += 1
            place[column] = at
            if column != row and at < stop and indices[at] == row:
                num_mutual += 1
    mutual[0] = num_mutual


@numba.njit(nogil=True)
def _root(parent, node):
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@compiled()
def _join(indptr, indices, symmetric, num_unions, parent):
    for row in range(len(parent)):
        if num_unions == 0:
            break
        own = _root(parent, np.int32(row))
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            if symmetric and column >= row:
                break
            if parent[column] == own:
                continue
            other = _root(parent, column)
            if other == own:
                continue
            if other < own:
                parent[own] = other
                own = other
            else:
                parent[other] = own
            num_unions -= 1
    for node in range(len(parent)):
        parent[node] = _root(parent, np.int32(node))


@numba.njit(nogil=True)
def _word(number, column):
    """What stands for a number in its column."""
    return mixed(number) + np.uint64(column + 1) * np.uint64(0x9E3779B97F4A7C15)


@compiled()
def _hash_sparse_rows(indptr, indices, bits, wanted, hashes, begin, end):
    for row in range(begin, end):
        if wanted[row]:
            for entry in range(indptr[row], indptr[row + 1]):
                word = _word(np.uint64(bits[entry]), indices[entry])
                hashes[row, 0] += mixed(word)
                hashes[row, 1] += _mixed_again(word)


@compiled()
def _read_sparse_features(indices, data, sums):
    for entry in range(len(indices)):
        column, number = indices[entry], np.float64(data[entry])
        sums[0, column] = min(sums[0, column], number)
        sums[1, column] = max(sums[1, column], number)
        sums[2, column] += number
        sums[3, column] += number * number
        sums[4, column] += 1


@compiled()
def _hash_rows(bits, wanted, magnitude, hashes, begin, end):
    for row in range(begin, end):
        if not wanted[row]:
            continue
        first, second = np.uint64(0), np.uint64(0)
        for column in range(bits.shape[1]):
            number = np.uint64(bits[row, column])
            if number & magnitude:
                word = _word(number, column)
                first += mixed(word)
                second += _mixed_again(word)
        hashes[row, 0], hashes[row, 1] = first, second


@compiled()
def _read_features(features, shift, begin, end, sums, empty):
    for row in range(begin, end):
        nonzero = False
        for column in range(features.shape[1]):
            number = np.float64(features[row, column])
            sums[0, column] = min(sums[0, column], number)
            sums[1, column] = max(sums[1, column], number)
            moved = number - shift[column]
            sums[2, column] += moved
            sums[3, column] += moved * moved
            if number != 0:
                sums[4, column] += 1
                nonzero = True
        if not nonzero:
            empty[0] += 1


@compiled()
def _reads_of_parts(indptr, indices, bounds, seen, begin, end):
    for row in range(begin, end):
        part, stop = 0, bounds[1]
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            while column >= stop:
                part += 1
                stop = bounds[part + 1]
            seen[part, row] = True
