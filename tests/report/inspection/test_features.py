"""What the feature columns are like, against NumPy."""

from dataclasses import astuple, replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from fullgnn.graph import Graph
from fullgnn.report.inspection import features as module
from fullgnn.report.inspection.features import features_of

ARCS = [[0], [1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_density_constant_and_empty_columns_and_scale(dtype, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-3, 4, (50, 8)).astype(dtype)
    values[:, 1], values[:, 4], values[:, 6] = 0, 2.5, 0
    values[:, 2] *= 1000
    values[:, 3] = 1 + values[:, 3] / 64
    values[7] = 0
    values[7, 4] = 2.5
    if dtype == np.float16:  # only mapped float16 stays as it is
        monkeypatch.setattr(module, "_BYTES_AT_ONCE", 4 * 8 * 7)  # seven rows
        np.save(tmp_path / "x.npy", values)
        values = np.load(tmp_path / "x.npy", mmap_mode="r")
    graph = Graph.from_edge_index(ARCS, features=values)
    assert graph.features.dtype == dtype
    features, double = features_of(graph), np.asarray(values, np.float64)
    assert features.num_columns == 8 and features.dtype == str(np.dtype(dtype))
    assert features.density == np.count_nonzero(values) / values.size and features.dense_bytes == values.nbytes
    stored = csr_array(values.astype(np.float32))
    stored.eliminate_zeros()
    assert features.sparse_bytes == stored.nnz * (4 + values.itemsize) + 8 * 51
    assert (features.num_empty, features.empty, features.num_constant, features.constant) == (2, (1, 6), 1, (4,))
    assert features.empty_rows == 0
    deviation = double.std(axis=0)
    assert astuple(features.widest) == (2, pytest.approx(deviation[2], rel=1e-12))
    assert astuple(features.narrowest) == (3, pytest.approx(deviation[3], rel=1e-12))


def test_sparse_features_are_counted_as_dense_ones() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-3, 4, (50, 8)) * (rng.random((50, 8)) < 0.3).astype(np.float32)
    values[:, 1], values[:, 4], values[3] = 0, 2.5, 0
    values[:, 5] = 1 + np.arange(50)  # without a zero
    dense, sparse = (features_of(Graph.from_edge_index(ARCS, features=made)) for made in (values, csr_array(values)))
    assert sparse.sparse and not dense.sparse
    spread = ("narrowest", "widest")
    for name in spread:
        column, expected = getattr(sparse, name), getattr(dense, name)
        assert column.number == expected.number and column.deviation == pytest.approx(expected.deviation, rel=1e-12)
    others = dict(sparse=False, **{name: getattr(dense, name) for name in spread})
    assert replace(sparse, **others) == dense


def test_a_column_far_from_0_has_an_exact_deviation() -> None:
    values = 1e8 + np.arange(100.0)[:, None]
    facts = features_of(Graph.from_edge_index(ARCS, features=values))
    assert facts.widest == facts.narrowest and astuple(facts.widest) == (0, pytest.approx(values.std(), rel=1e-9))


def test_numbers_whose_squares_overflow_and_rows_of_zeros() -> None:
    values = np.array([[1e200, 0], [-1e200, 0], [0.0, 0.0], [-0.0, 0]])
    features = features_of(Graph.from_edge_index(ARCS, features=values))
    assert (features.empty_rows, features.widest, features.narrowest) == (2, None, None)


def test_no_features_and_many_columns() -> None:
    assert features_of(Graph.from_edge_index(ARCS, num_nodes=2)) is None
    features = features_of(Graph.from_edge_index(ARCS, features=np.zeros((2, 100))))
    assert features.num_empty == 100 and features.empty == tuple(range(20))
    assert features.empty_rows == 2 and features.narrowest is None
