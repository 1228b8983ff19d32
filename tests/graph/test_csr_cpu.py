"""Parts of sparse matrices, and the test of symmetry, compared with dense ones."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

from fullgnn.graph._csr_cpu import count_rows, cut_columns, is_symmetric, rows_of, select, with_diagonal
from fullgnn.graph.csr import are_ones, ones

SHAPES = [(0, 5), (1, 1), (30, 50), (50, 30), (200, 200)]


@pytest.fixture(params=[np.int8, np.float32, np.float64], ids=lambda dtype: np.dtype(dtype).name)
def dtype(request):
    return request.param


@pytest.fixture(params=SHAPES, ids=str)
def dense(request, dtype):
    rng = np.random.default_rng(0)
    return (rng.integers(1, 9, request.param) * (rng.random(request.param) < 0.2)).astype(dtype)


def pattern_of(dense):
    """The places of the entries of ``dense``, as the parts of a prepared graph without weights have them."""
    adj = csr_array(dense)
    return csr_array((ones(adj.nnz), adj.indices, adj.indptr), dense.shape)


def _is_pattern(matrix, wanted):
    _is(matrix, wanted)
    assert matrix.nnz == 0 or are_ones(matrix.data)


def _is(matrix, wanted):
    unchecked = csr_array((matrix.data, matrix.indices, matrix.indptr), matrix.shape)
    assert matrix.has_canonical_format and unchecked.has_canonical_format
    assert matrix.dtype == wanted.dtype and matrix.shape == wanted.shape
    np.testing.assert_array_equal(matrix.toarray(), wanted)
    assert matrix.nnz == np.count_nonzero(wanted)


def test_ranges_of_columns(dense):
    num_columns = dense.shape[1]
    ranges = [slice(0, num_columns // 3), slice(num_columns // 2, num_columns)]
    pieces = cut_columns(csr_array(dense), ranges)
    for piece, columns in zip(pieces, ranges, strict=True):
        _is(piece, dense[:, columns])
    for piece, columns in zip(cut_columns(pattern_of(dense), ranges), ranges, strict=True):
        _is_pattern(piece, (dense[:, columns] != 0).astype(np.int8))


def test_consecutive_rows(dense):
    rows = slice(len(dense) // 4, len(dense) // 2)
    _is(rows_of(csr_array(dense), rows), dense[rows])
    _is_pattern(rows_of(pattern_of(dense), rows), (dense[rows] != 0).astype(np.int8))


def test_chosen_rows_and_columns(dense):
    rng = np.random.default_rng(1)
    rows = rng.permutation(len(dense))[: len(dense) // 2]
    columns = np.flatnonzero(rng.random(dense.shape[1]) < 0.4)
    _is(select(csr_array(dense), rows, columns), dense[rows][:, columns])
    _is(select(csr_array(dense), rows=rows), dense[rows])
    _is(select(csr_array(dense), columns=columns), dense[:, columns])
    places = (dense != 0).astype(np.int8)
    _is_pattern(select(pattern_of(dense), rows, columns), places[rows][:, columns])
    _is_pattern(select(pattern_of(dense), rows=rows), places[rows])


@pytest.mark.sample(4)
@pytest.mark.parametrize("first", [0, 7, -3])
def test_the_diagonal_becomes_one(dense, first):
    wanted = dense.copy()
    rows = np.arange(len(dense))
    rows = rows[(rows + first >= 0) & (rows + first < dense.shape[1])]
    wanted[rows, rows + first] = 1
    _is(with_diagonal(csr_array(dense), first), wanted)
    if dense.any():
        _is_pattern(with_diagonal(pattern_of(dense), first), (wanted != 0).astype(np.int8))


def test_symmetry(dtype):
    rng = np.random.default_rng(2)
    for size in range(1, 60):
        half = np.triu(rng.integers(1, 5, (size, size)) * (rng.random((size, size)) < 0.3))
        dense = (half + np.triu(half, 1).T).astype(dtype)
        pattern, weights = csr_array(dense), None if dtype == np.int8 else csr_array(dense).data
        assert is_symmetric(pattern.indptr, pattern.indices, weights)
        row, column = rng.integers(0, size, 2)
        dense[row, column] = 0 if dense[row, column] else 1  # an entry goes or comes
        changed = csr_array(dense)
        weights = None if dtype == np.int8 else changed.data
        assert is_symmetric(changed.indptr, changed.indices, weights) == (row == column)


def test_one_weight_of_two_differs():
    dense = np.array([[0, 2, 0], [2, 0, 3], [0, 3.5, 0]])
    adj = csr_array(dense)
    assert is_symmetric(adj.indptr, adj.indices, None)
    assert not is_symmetric(adj.indptr, adj.indices, adj.data)
    assert not is_symmetric(adj.indptr, adj.indices, adj.data.astype(np.float32))


def test_an_edge_that_has_moved():
    dense = np.zeros((4, 4), np.float32)
    dense[0, 1] = dense[2, 0] = 1  # as many entries above the diagonal as below it
    adj = csr_array(dense)
    assert not is_symmetric(adj.indptr, adj.indices, None)


def test_counts_of_a_block_row():
    bounds, first, last = np.array([0, 0, 13, 20, 20, 40]), 13, 20
    dense = np.random.default_rng(3).random((40, 40)) < 0.2
    np.fill_diagonal(dense, False)
    dense[15] = False
    dense[14, 14] = dense[17, 17] = True
    rows, chosen = dense[first:last], np.arange(last - first) < 3
    adj = csr_array(rows)
    nnz, loops, seen = count_rows(adj.indptr.astype(np.int64), adj.indices.astype(np.int32), first, chosen, bounds)
    for counts, some in zip(nnz, (rows, rows[chosen]), strict=True):
        wanted = [np.count_nonzero(some[:, start:stop]) for start, stop in itertools.pairwise(bounds)]
        np.testing.assert_array_equal(counts, wanted)
    assert loops.tolist() == [2, 1]
    np.testing.assert_array_equal(seen, [rows.any(axis=0), rows[chosen].any(axis=0)])
