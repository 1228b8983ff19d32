"""Graph: constructors, validation, symmetrisation, permutation. The oracle is a dense numpy matrix."""

from dataclasses import replace

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch

from fullgnn.errors import DataError
from fullgnn.graph import Graph

# 0 <-> 1, 2 reads from 0, 3 has a self-loop, 4 is isolated.
DENSE = np.array([[0, 2, 0, 0, 0], [3, 0, 0, 0, 0], [5, 0, 0, 0, 0], [0, 0, 0, 7, 0], [0, 0, 0, 0, 0]], float)
PATTERN = (DENSE != 0).astype(float)


def random_dense(seed, num_nodes=30, density=0.15):
    rng = np.random.default_rng(seed)
    return rng.integers(-9, 10, (num_nodes, num_nodes)) * (rng.random((num_nodes, num_nodes)) < density).astype(float)


@pytest.mark.parametrize(
    "container",
    [
        scipy.sparse.csr_array,
        scipy.sparse.csr_matrix,
        scipy.sparse.coo_array,
        scipy.sparse.csc_matrix,
        scipy.sparse.lil_array,
    ],
)
def test_from_scipy_keeps_orientation(container, fields):
    graph = Graph.from_scipy(container(DENSE), **fields(5))
    np.testing.assert_array_equal(graph.adjacency().toarray(), DENSE)
    assert graph.indices[graph.indptr[2] : graph.indptr[3]].tolist() == [0]  # row 2 reads from 0


def test_from_scipy_sums_duplicates_and_drops_zeros(fields):
    row, column = [0, 0, 1, 2, 2], [1, 1, 2, 0, 0]
    adj = scipy.sparse.coo_array(([1.5, 2.0, 0.0, 4.0, -4.0], (row, column)), shape=(3, 3))
    graph = Graph.from_scipy(adj, **fields(3))
    assert graph.num_edges == 1
    assert graph.adjacency()[0, 1] == 3.5


def test_from_scipy_sums_small_integers_without_overflow(fields):
    arcs = np.zeros(300, dtype=int)
    adj = scipy.sparse.coo_array((np.ones(300, np.int8), (arcs, arcs + 1)), shape=(2, 2))
    assert Graph.from_scipy(adj, **fields(2)).weight.tolist() == [300]


def test_from_scipy_merges_boolean_duplicates(fields):
    adj = scipy.sparse.coo_array((np.ones(256, bool), (np.zeros(256, int), np.ones(256, int))), shape=(2, 2))
    graph = Graph.from_scipy(adj, **fields(2))
    assert graph.weight is None and graph.num_edges == 1


def test_all_ones_are_no_weights(fields):
    assert Graph.from_scipy(scipy.sparse.csr_array(PATTERN), **fields(5)).weight is None
    assert Graph.from_scipy(scipy.sparse.csr_array(DENSE), **fields(5)).weight is not None


def test_from_scipy_leaves_its_argument_alone(fields):
    adj = scipy.sparse.csr_array((np.array([1.0, 0, 2, 3]), np.array([2, 1, 0, 0]), np.array([0, 3, 4, 4])))
    before = adj.copy()
    graph = Graph.from_scipy(adj, **fields(3))
    assert graph.num_edges == 3
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(adj, name), getattr(before, name))


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
def test_from_edge_index_arc_goes_from_source_to_target(kind, fields):
    graph = Graph.from_edge_index(kind([[0, 0, 2], [1, 1, 0]]), **fields(4))  # 0 -> 1 twice, 2 -> 0
    expected = np.zeros((4, 4))
    expected[1, 0] = expected[0, 2] = 1
    np.testing.assert_array_equal(graph.adjacency().toarray(), expected)
    assert graph.weight is None and graph.num_edges == 2


def test_from_edge_index_sums_weights(fields):
    arcs, weight = [[0, 0, 2], [1, 1, 0]], torch.tensor([0.5, 2.0, 4.0])
    graph = Graph.from_edge_index(arcs, edge_weight=weight, num_nodes=4, **fields(4))
    assert graph.adjacency()[1, 0] == 2.5 and graph.adjacency()[0, 2] == 4
    assert graph.weight.dtype == np.float32


def test_from_edge_index_without_arcs(fields):
    assert Graph.from_edge_index([[], []], **fields(3)).num_edges == 0


@pytest.mark.parametrize(
    ("arcs", "changes", "message"),
    [
        ([[0], [5]], {}, "node id 5 .* out of range: the graph has nodes 0 to 3"),
        ([[-1], [0]], {}, "node id -1 .* out of range"),
        ([[0, 1, 2]], {}, r"pass \(2, E\)"),
        ([[0, 1], [2, 3], [0, 3]], {}, r"pass \(2, E\)"),
        ([[0.5], [1.0]], {}, "pass integers"),
        ([["a"], ["b"]], {}, "pass real numbers"),
        ([[0], [1]], dict(edge_weight=[1.0, 2.0]), "pass one each"),
        ([[0], [1]], dict(num_nodes=7), "num_nodes is 7: they must agree"),
    ],
)
def test_from_edge_index_mistakes(arcs, changes, message, fields):
    with pytest.raises(DataError, match=message):
        Graph.from_edge_index(arcs, **fields(4), **changes)


def test_more_nodes_than_int32_can_number_are_refused_before_memory_is_taken():
    for num_nodes in (2**31, 10**12):
        told = f"has {num_nodes} nodes, and a Graph can have fewer than 2\\^31"
        with pytest.raises(DataError, match=told):
            Graph.from_edge_index([[0], [1]], num_nodes=num_nodes)
        with pytest.raises(DataError, match=told):
            Graph.from_scipy(scipy.sparse.coo_array(([1.0], ([0], [1])), shape=(num_nodes, num_nodes)))


def test_from_networkx_directed_and_undirected(fields):
    directed = networkx.DiGraph([("b", "a"), ("a", "c")])  # nodes in order b, a, c
    adj = Graph.from_networkx(directed, **fields(3)).adjacency().toarray()
    np.testing.assert_array_equal(adj, [[0, 0, 0], [1, 0, 0], [0, 1, 0]])  # a reads from b, c from a
    both = Graph.from_networkx(networkx.Graph(directed), **fields(3)).adjacency().toarray()
    np.testing.assert_array_equal(both, adj + adj.T)


def test_networkx_stores_the_transpose_of_the_adjacency(fields):
    """As the docstrings of from_scipy and from_networkx say."""
    directed = networkx.DiGraph([(0, 1), (1, 2), (0, 2)])
    matrix, graph = networkx.to_scipy_sparse_array(directed), Graph.from_networkx(directed, **fields(3))
    transposed = Graph.from_scipy(matrix.T, **fields(3)).adjacency().toarray()
    np.testing.assert_array_equal(graph.adjacency().toarray(), transposed)
    assert (Graph.from_scipy(matrix, **fields(3)).adjacency().toarray() != transposed).any()


def test_from_networkx_weights_and_parallel_edges(fields):
    multi = networkx.MultiDiGraph()
    multi.add_edge(0, 1, w=2.0)
    multi.add_edge(0, 1, w=3.0)
    assert Graph.from_networkx(multi, **fields(2)).weight is None
    assert Graph.from_networkx(multi, weight="w", **fields(2)).adjacency()[1, 0] == 5
    with pytest.raises(DataError, match="no attribute 'wieght'"):
        Graph.from_networkx(multi, weight="wieght", **fields(2))
    with pytest.raises(DataError, match="no nodes"):
        Graph.from_networkx(networkx.Graph(), **fields(2))


MISTAKES = {
    "no nodes": (dict(indptr=[0]), "no nodes"),
    "indptr falls": (dict(indptr=[0, 2, 1, 3, 3]), "never decrease"),
    "indptr starts late": (dict(indptr=[1, 1, 1, 3, 3]), "must start at 0"),
    "indptr ends early": (dict(indptr=[0, 1, 2, 2, 2]), "they must agree"),
    "indptr float": (dict(indptr=[0.0, 1, 2, 3, 3]), "pass integers"),
    "index too large": (dict(indices=[1, 0, 4]), "node id 4 is out of range: the graph has nodes 0 to 3"),
    "index negative": (dict(indices=[-1, 0, 1]), "node id -1 is out of range"),
    "index beyond int32": (dict(indices=[1, 0, 2**32]), "out of range"),
    "unsorted": (dict(indptr=[0, 2, 3, 3, 3], indices=[2, 1, 0]), "increase within a row"),
    "duplicate": (dict(indptr=[0, 2, 3, 3, 3], indices=[1, 1, 0]), "without duplicates"),
    "features short": (
        dict(features=np.ones((3, 2))),
        r"features has shape \(3, 2\) but the graph has 4 nodes",
    ),
    "features flat": (dict(features=np.ones(4)), "features has shape"),
    "features NaN": (dict(features=np.array([[1, np.nan]] * 4)), "features hold NaN or Inf"),
    "features Inf": (dict(features=np.array([[1, -np.inf]] * 4)), "features hold NaN or Inf"),
    "features sparse": (dict(features=scipy.sparse.csr_array(np.eye(3))), r"features has shape \(3, 3\)"),
    "features sparse NaN": (dict(features=scipy.sparse.coo_array(np.diag([1, np.nan, 0, 0]))), "NaN or Inf"),
    "features sparse text": (dict(features=scipy.sparse.csr_array(np.eye(4) * 1j)), "pass real numbers"),
    "labels sparse": (dict(labels=scipy.sparse.csr_array(np.eye(4))), "labels is sparse"),
    "features text": (dict(features=[["a"]] * 4), "pass real numbers"),
    "features ragged": (dict(features=[[1], [1, 2], [1], [1]]), "cannot be read as an array"),
    "labels short": (dict(labels=[0, 1, 0]), r"labels has shape \(3,\) but the graph has 4 nodes"),
    "labels without columns": (dict(labels=np.zeros((4, 0), int)), "one class per node"),
    "labels of three dims": (dict(labels=np.zeros((4, 2, 2), int)), "one class per node"),
    "labels in columns not 0 or 1": (dict(labels=2 * np.eye(4, 2, dtype=int)), "columns hold 2: a column says whether"),
    "labels Inf": (dict(labels=[0.5, np.inf, 0.5, 0.5]), "labels hold Inf"),
    "columns unlike num_classes": (dict(labels=np.eye(4, dtype=int)), "4 columns but num_classes is 2"),
    "label too large": (dict(labels=[0, 1, 2, 0]), "label 2 is out of range: num_classes=2"),
    "label too small": (dict(labels=[0, 1, -2, 0]), "label -2 is out of range"),
    "unlabelled in training": (dict(labels=[-1, 1, 0, 1]), "train_mask contains unlabelled"),
    "unlabelled in test": (dict(labels=[0, 1, 0, -1]), "test_mask contains unlabelled"),
    "num_classes negative": (dict(num_classes=-1), "num_classes is -1"),
    "mask short": (dict(val_mask=[True]), r"val_mask has shape \(1,\) but the graph has 4 nodes"),
    "mask of columns": (
        dict(val_mask=np.zeros((4, 10), bool)),
        r"shape \(4, 10\), .* choose one, as in val_mask\[:, 0\]",
    ),
    "mask of ids": (dict(test_mask=[0, 1, 2, 2]), "some of them repeat"),
    "masks overlap": (dict(val_mask=[True, False, False, False]), "train_mask and val_mask overlap"),
    "masks overlap at test": (dict(val_mask=[False, False, True, False]), "val_mask and test_mask overlap"),
    "weight short": (dict(weight=[1.0]), "weight has shape"),
    "weight NaN": (dict(weight=[1.0, np.nan, 2.0]), "weight holds NaN or Inf"),
    "weight Inf": (dict(weight=[1.0, np.inf, 2.0]), "weight holds NaN or Inf"),
    "weight zero": (dict(weight=[1.0, 0.0, 2.0]), "weight holds a zero"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_every_mistake_is_one_clear_line(case, fields):
    valid = dict(indptr=[0, 1, 2, 3, 3], indices=[1, 0, 1], **fields(4))
    Graph(**valid)
    changes, message = MISTAKES[case]
    with pytest.raises(DataError, match=message) as error:
        Graph(**{**valid, **changes})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("adj", "message"),
    [
        (np.eye(3), "not a scipy sparse"),
        (scipy.sparse.eye_array(3, 4), "square"),
        (scipy.sparse.eye_array(3, dtype=complex), "real numbers"),
    ],
)
def test_from_scipy_mistakes(adj, message, fields):
    with pytest.raises(DataError, match=message):
        Graph.from_scipy(adj, **fields(3))


def test_fields_are_converted_shared_and_read_only():
    features, labels = np.ones((3, 2), np.float32), np.array([0, 1, -1])
    mask = np.array([True, True, False])
    graph = Graph([0, 1, 2, 2], np.array([1, 0]), features, labels, mask, ~mask & False, [0, 0, 0])
    assert graph.indptr.dtype == np.int64 and graph.indices.dtype == np.int32
    assert graph.test_mask.dtype == bool and graph.num_classes == 2
    assert np.shares_memory(graph.features, features) and np.shares_memory(graph.labels, labels)
    assert features.flags.writeable and not graph.features.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        graph.features[0, 0] = 2
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (3, 2, 2)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.float64, np.float64),
        (np.float32, np.float32),
        (np.float16, np.float32),
        (np.int64, np.float32),
        (bool, np.float32),
    ],
)
def test_feature_dtypes(given, kept, fields):
    graph = Graph.from_edge_index([[0], [1]], **fields(3, features=np.ones((3, 2), dtype=given)))
    assert graph.features.dtype == kept


def test_mapped_float16_stays_in_its_file(tmp_path, fields):
    file = tmp_path / "features.npy"
    np.save(file, np.arange(6, dtype=np.float16).reshape(3, 2))
    mapped = np.load(file, mmap_mode="r")
    graph = Graph.from_edge_index([[0], [1]], **fields(3, features=mapped))
    assert graph.features.dtype == np.float16 and np.shares_memory(graph.features, mapped)
    assert replace(graph, name="again").features.dtype == np.float16  # also through a view of a view
    assert graph.permute([2, 0, 1]).features.dtype == np.float32  # in memory
    assert Graph.from_edge_index([[0], [1]], **fields(3, features=mapped[:, :1])).features.dtype == np.float32
    with_inf = tmp_path / "with_inf.npy"
    np.save(with_inf, np.array([[0, 1], [2, np.inf], [4, 5]], dtype=np.float16))
    with pytest.raises(DataError, match="NaN or Inf"):
        Graph.from_edge_index([[0], [1]], **fields(3, features=np.load(with_inf, mmap_mode="r")))


def test_masks_left_out_are_false(fields):
    given = fields(3)
    del given["val_mask"], given["test_mask"]
    graph = Graph.from_edge_index([[0], [1]], **given)
    assert not graph.val_mask.any() and not graph.test_mask.any()


@pytest.mark.parametrize(
    "dense", [DENSE, random_dense(1), -np.abs(random_dense(2))], ids=["small", "mixed", "negative"]
)
def test_symmetrized_takes_the_union_and_the_larger_weight(dense, fields):
    graph = Graph.from_scipy(scipy.sparse.csr_array(dense), **fields(len(dense))).symmetrized()
    lowest = np.where(dense == 0, -np.inf, dense)  # a missing entry loses against every stored one
    expected = np.maximum(lowest, lowest.T)
    np.testing.assert_array_equal(graph.adjacency().toarray(), np.where(np.isinf(expected), 0, expected))
    assert graph.symmetrized() is graph


def test_symmetrized_without_weights(fields):
    graph = Graph.from_scipy(scipy.sparse.csr_array(PATTERN), **fields(5)).symmetrized()
    np.testing.assert_array_equal(graph.adjacency().toarray(), np.maximum(PATTERN, PATTERN.T))
    assert graph.weight is None and graph.symmetrized() is graph


@pytest.mark.parametrize("weighted", [True, False])
def test_permute_moves_everything_together(weighted, fields):
    dense = random_dense(3) if weighted else (random_dense(3) != 0).astype(float)
    graph = Graph.from_scipy(scipy.sparse.csr_array(dense), **fields(30))
    perm = np.random.default_rng(0).permutation(30)
    moved = graph.permute(torch.from_numpy(perm))
    np.testing.assert_array_equal(moved.adjacency().toarray(), dense[np.ix_(perm, perm)])
    for name in ("features", "labels", "train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(getattr(moved, name), getattr(graph, name)[perm])
    assert (moved.weight is None) == (not weighted)
    back = moved.permute(np.argsort(perm))
    np.testing.assert_array_equal(back.indices, graph.indices)


@pytest.mark.parametrize("perm", [[0, 1, 2, 3], [0, 1, 2, 3, 3], [1, 2, 3, 4, 5], [-1, 0, 1, 2, 3], [[0, 1, 2, 3, 4]]])
def test_permute_refuses_what_is_no_permutation(perm, fields):
    with pytest.raises(DataError, match="exactly once"):
        Graph.from_scipy(scipy.sparse.csr_array(DENSE), **fields(5)).permute(perm)


def test_replace_checks_again(fields):
    graph = Graph.from_scipy(scipy.sparse.csr_array(DENSE), **fields(5))
    assert replace(graph, name="other").name == "other"
    with pytest.raises(DataError, match="overlap"):
        replace(graph, train_mask=~graph.train_mask)


def test_a_graph_prints_as_one_line(fields):
    def printed(labels=None, **others):
        return repr(Graph.from_edge_index([[0, 1], [3, 4]], num_nodes=5, labels=labels, **others))

    assert repr(Graph.from_scipy(scipy.sparse.csr_array(PATTERN), name="five", **fields(5))) == (
        "Graph(five: 5 nodes, 4 stored edges, 2 features, 2 classes, train 1, val 1, test 3)"
    )
    assert printed() == "Graph(graph: 5 nodes, 2 stored edges, no features, no labels, no split)"
    weighted = printed(np.ones(5) / 2, edge_weight=[0.5, 2], num_users=3, test_links=[[2], [4]])
    assert weighted == (
        "Graph(graph: 5 nodes (3 users), 2 stored edges with weights, no features, float64 labels, no split,"
        " test_links 1)"
    )
    assert ", 3 labels a node," in printed(np.ones((5, 3), int))
    assert ", 3 float64 labels a node," in printed(np.ones((5, 3)) / 2)
