"""Sparse features of a ``Graph``: what is taken, how they are kept, and that they are the dense ones everywhere."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from fullgnn.codecs import Features
from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.arrays import graph_from_arrays, graph_to_arrays
from fullgnn.graph.datasets.npz import load
from fullgnn.graph.node_data import normalize_rows
from fullgnn.graph.sparse_features import density, elements, to_dense
from fullgnn.partition.facts import Fingerprint, NodeFacts

NUM_NODES = 40
RNG = np.random.default_rng(3)
DENSE = (RNG.integers(1, 5, (NUM_NODES, 30)) * (RNG.random((NUM_NODES, 30)) < 0.1)).astype(np.float32)
DENSE[[0, 7, 39]] = 0
ARCS = RNG.integers(0, NUM_NODES, (2, 200))
FORMATS = ["csr", "csc", "coo", "bsr", "dok", "lil", "dia"]


def graph(features: Any, **given: Any) -> Graph:
    return Graph.from_edge_index(ARCS, features=features, **given)


def is_canonical(matrix: scipy.sparse.csr_array) -> bool:
    again = scipy.sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
    return again.has_canonical_format and bool((matrix.data != 0).all()) and matrix.indices.dtype == np.int32


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, bool])
@pytest.mark.parametrize("of", FORMATS)
def test_every_format_of_scipy_is_kept_as_csr(of: str, dtype: Any) -> None:
    given = scipy.sparse.coo_array(DENSE.astype(dtype)).asformat(of)
    before = given.copy().tocoo()
    kept = graph(given).features
    assert kept.dtype == (np.float64 if dtype == np.float64 else np.float32) and is_canonical(kept)
    np.testing.assert_array_equal(kept.toarray(), DENSE.astype(dtype).astype(kept.dtype))
    assert (given.tocoo() != before).nnz == 0
    with pytest.raises(ValueError, match="read-only"):
        kept.data[:1] = 7


def test_entries_of_one_place_are_added_and_zeros_dropped() -> None:
    row, column, value = [1, 1, 2, 5, 0], [3, 3, 4, 9, 0], np.array([100, 100, 0, 1, 2], np.int8)
    given = scipy.sparse.coo_array((value, (row, column)), shape=(NUM_NODES, 10))
    kept = graph(given).features
    assert kept.nnz == 3 and kept.toarray()[1, 3] == 200 and is_canonical(kept)


@pytest.mark.parametrize("of", ["coo", "csr", "csc"])
def test_sparse_tensors_are_taken(of: str) -> None:
    dense = torch.from_numpy(DENSE)
    given = dense.to_sparse_coo() if of == "coo" else getattr(dense, f"to_sparse_{of}")()
    np.testing.assert_array_equal(graph(given).features.toarray(), DENSE)
    data = SimpleNamespace(edge_index=torch.from_numpy(ARCS), x=given)
    np.testing.assert_array_equal(Graph.from_pyg(data).features.toarray(), DENSE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_refused(value: float) -> None:
    given = scipy.sparse.csr_array(DENSE)
    given.data[3] = value
    with pytest.raises(DataError, match="NaN or Inf"):
        graph(given)


def test_the_dense_and_the_sparse_graph_are_known_as_one(tmp_path: Path) -> None:
    dense, sparse = graph(DENSE), graph(scipy.sparse.csr_array(DENSE))
    assert Fingerprint.of(dense) == Fingerprint.of(sparse)
    facts = NodeFacts.of(sparse)
    assert facts.sparse and facts.density == NodeFacts.of(dense).density == np.count_nonzero(DENSE) / DENSE.size
    for step in (1, 2, 7, 1200, 5000):
        np.testing.assert_array_equal(elements(sparse.features, step), DENSE.reshape(-1)[::step])
    perm = RNG.permutation(NUM_NODES)
    np.testing.assert_array_equal(sparse.permute(perm).features.toarray(), DENSE[perm])
    assert is_canonical(sparse.permute(perm).features)
    np.testing.assert_array_equal(sparse.symmetrized().features.toarray(), DENSE)
    sparse.save(tmp_path / "sparse.npz")
    for read in (
        load(None, "", str(tmp_path / "sparse.npz"), False, None, None, 0),
        graph_from_arrays(graph_to_arrays(sparse), "again"),
    ):
        assert is_canonical(read.features)
        np.testing.assert_array_equal(read.features.toarray(), DENSE)
    assert "30 features (sparse)" in repr(sparse)


def test_normalised_rows_are_those_of_the_dense_features() -> None:
    sparse = normalize_rows(graph(scipy.sparse.csr_array(DENSE)).features)
    np.testing.assert_array_equal(sparse.toarray(), normalize_rows(DENSE))
    reals = np.random.default_rng(0).random((50, 400), np.float32) * (np.arange(400) % 3 == 0)  # sums are rounded
    sparse = normalize_rows(scipy.sparse.csr_array(reals))
    np.testing.assert_array_equal(sparse.toarray(), normalize_rows(reals))
    with pytest.raises(DataError, match="rows with sums >= 0"):
        normalize_rows(scipy.sparse.csr_array(-DENSE))


def test_a_codec_reads_the_dense_rows() -> None:
    some = np.array([3, 3, 39, 0])
    for dtype in ("float32", "float64"):
        dense, sparse = (Features(values, dtype) for values in (DENSE, scipy.sparse.csr_array(DENSE)))
        assert (sparse.num_nodes, sparse.num_columns) == (dense.num_nodes, dense.num_columns)
        for rows in (some, slice(5, 17)):
            np.testing.assert_array_equal(sparse[rows], dense[rows])
            assert sparse[rows].dtype == dtype and sparse[rows].flags.c_contiguous
        np.testing.assert_array_equal(sparse.whole(), dense.whole())


def test_features_without_columns_and_too_large_ones() -> None:
    assert density(graph(scipy.sparse.csr_array((NUM_NODES, 0))).features) == 0
    huge = scipy.sparse.csr_array((NUM_NODES, 2**31 - 1), dtype=np.float64)
    with pytest.raises(DataError, match="as an array"):
        to_dense(scipy.sparse.csr_array((1 << 20, 2**31 - 1), dtype=np.float64))
    assert graph(huge).num_features == 2**31 - 1
