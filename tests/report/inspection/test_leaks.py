"""Twins of test nodes, against sets and all pairs of rows; labels among the features, planted."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from fullgnn.graph import Graph
from fullgnn.report.inspection import leaks
from fullgnn.report.inspection.leaks import label_columns, leaks_of, twins
from fullgnn.report.inspection.passes import Passes
from tests.report.inspection.graphs import random_graph


def test_chameleon_has_214_test_nodes_with_a_twin(shared_data) -> None:
    with np.load(shared_data / "heterophilous" / "chameleon_directed.npz") as file:
        arrays = dict(file)
    masks = {f"{name}_mask": arrays[f"{name}_masks"][0] for name in ("train", "val", "test")}
    labels, features = arrays["node_labels"], arrays["node_features"]
    graph = Graph.from_edge_index(arrays["edges"].T, features=features, labels=labels, **masks)
    counts = leaks_of(graph, Passes.over(graph))
    assert (counts.same_neighbours, counts.num_test) == (214, 456)
    assert counts.same_features == twins_by_sets([row.tobytes() if row.any() else b"" for row in features], graph)


def twins_by_sets(keys: list, graph: Graph) -> int:
    """Test nodes with the key of a training node; empty keys are no twins."""
    of_train = {key for key, train in zip(keys, graph.train_mask) if train and key}
    return sum(key in of_train for key, test in zip(keys, graph.test_mask) if test)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_twins_of_random_graphs(seed: int, symmetric: bool) -> None:
    graph = random_graph(seed, 300, symmetric, density=0.002)  # most nodes have one neighbour, or none
    dense = graph.adjacency(bool).toarray()
    pairs = [(frozenset(np.flatnonzero(row)), frozenset(np.flatnonzero(col))) for row, col in zip(dense, dense.T)]
    counts = leaks_of(graph, Passes.over(graph))
    expected = twins_by_sets([pair if any(pair) else () for pair in pairs], graph)
    assert counts.same_neighbours == expected > 0
    expected = twins_by_sets([row.tobytes() if row.any() else b"" for row in np.abs(graph.features)], graph)
    assert counts.same_features == expected > 0


def test_neighbours_in_the_other_direction_are_others() -> None:
    """0 and 1 read 2, and 3 is read by 2; 4 and 5 have features that are 0 but for the sign."""
    features = np.array([[1, 0], [2, 0], [3, 0], [4, 0], [0.0, 0], [-0.0, 0]])
    masks = dict(train_mask=[1, 0, 0, 0, 1, 0], test_mask=[0, 1, 0, 1, 0, 1])
    graph = Graph.from_edge_index([[2, 2, 3], [0, 1, 2]], features=features, labels=[0] * 6, **masks)
    counts = leaks_of(graph, Passes.over(graph))
    assert (counts.same_neighbours, counts.same_features, counts.num_test) == (1, 0, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_features_have_the_twins_of_dense_ones(dtype) -> None:
    graph = random_graph(5, 300)
    dense = replace(graph, features=(graph.features * np.array([1, 0, -2.5])).astype(dtype))
    sparse = replace(dense, features=csr_array(dense.features))
    of_dense, of_sparse = (leaks_of(given, Passes.over(given)) for given in (dense, sparse))
    assert of_dense == of_sparse and of_dense.same_features > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_of_one_bit_less_are_others(dtype) -> None:
    row = np.random.default_rng(0).standard_normal(7).astype(dtype)
    other = row.copy()
    other[3] = np.nextafter(row[3], dtype(9), dtype=dtype)
    features = np.stack([row, row, other, row[::-1]])
    masks = dict(train_mask=[1, 0, 0, 0], test_mask=[0, 1, 1, 1])
    graph = Graph.from_edge_index([[0], [1]], features=features, labels=[0, 1, 0, 1], **masks)
    assert leaks_of(graph, Passes.over(graph)).same_features == 1


def test_equal_first_words_are_told_apart_by_the_second() -> None:
    hashes = np.array([[5, 1], [5, 2], [5, 3], [5, 2], [5, 9], [7, 1], [5, 3]], np.uint64)
    masks = dict(train_mask=[1, 1, 1, 0, 0, 0, 0], test_mask=[0, 0, 0, 1, 1, 1, 1])
    graph = Graph.from_edge_index([[0], [1]], num_nodes=7, labels=[0] * 7, **masks)
    assert twins(hashes, graph, np.ones(7, bool)) == 2  # (5, 2) and (5, 3)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "FIRST_ROWS", 3)
    monkeypatch.setattr(leaks, "_ROWS_AT_ONCE", 4)


def planted(sparse: bool, labels: np.ndarray, *columns) -> Graph:
    rng = np.random.default_rng(0)
    noise = [rng.standard_normal(len(labels)) * (rng.random(len(labels)) < 0.5) for _ in range(3)]
    features = np.stack([*noise, *columns], axis=1)
    return Graph.from_edge_index([[0], [1]], features=csr_array(features) if sparse else features, labels=labels)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_column_that_is_the_label_or_a_map_of_it(small_blocks, sparse: bool) -> None:
    labels = np.array([0, 1, 2, 1, 0, 2, 2, 1, 0, 0, 1, -1])
    permuted, one_hot = np.array([7.0, -1, 3])[labels], (labels == 2).astype(float)
    nearly = labels.astype(float)
    nearly[10] = 2  # the last labelled node
    unlabelled = labels + 0.0
    unlabelled[11] = 99  # where no label is known, the column may be anything
    constant = np.ones(12)
    graph = planted(sparse, labels, labels.astype(float), permuted, one_hot, nearly, unlabelled, constant)
    assert label_columns(graph) == ((3, 4, 7), (5,))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_column_that_is_a_value_or_one_of_several_labels(small_blocks, sparse: bool) -> None:
    values = np.random.default_rng(1).standard_normal(12)
    values[4] = np.nan
    assert label_columns(planted(sparse, values, np.nan_to_num(values), np.zeros(12), np.ones(12))) == ((3,), ())
    several = (np.random.default_rng(2).random((12, 2)) < 0.5).astype(np.int64)
    several[0] = [1, 0]
    several[:, 1][several[:, 0] == 1] = 0
    several[5, 1] = -1
    assert label_columns(planted(sparse, several, several[:, 0], 1 - several[:, 0], several[:, 1])) == ((3, 5), ())


def test_nothing_to_compare() -> None:
    graph = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
    assert leaks_of(graph, Passes.over(graph)) is None
    graph = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2, labels=[0, 1], train_mask=[1, 1])
    assert leaks_of(graph, Passes.over(graph)) is None
