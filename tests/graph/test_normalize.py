"""Normalised adjacency against a dense float64 oracle, element by element."""

import numpy as np
import pytest
import scipy.sparse

import fullgnn.graph.normalize
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, is_symmetric, normalized_adjacency


def random_dense(directed, weighted, seed=0, num_nodes=40):
    """Sparse random matrix with some self-loops, an isolated node (5), a node that is only read (6)."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((num_nodes,) * 2) < 0.1, rng.random((num_nodes,) * 2) + 0.1, 0)
    dense[range(0, 40, 7), range(0, 40, 7)] = 3.0
    dense[5], dense[:, 5], dense[6], dense[9, 6] = 0, 0, 0, 0.5
    if not directed:
        dense = np.maximum(dense, dense.T)
    return dense if weighted else (dense != 0).astype(float)


def oracle(dense, normalization, self_loops):
    """D^-1/2 A' D^-1/2 or D^-1 A', written out."""
    adj = dense.copy()
    if self_loops:
        adj[np.diag_indices_from(adj)] = 1
    degree = adj.sum(axis=1)
    with np.errstate(divide="ignore"):
        half, full = np.where(degree > 0, degree**-0.5, 0), np.where(degree > 0, 1 / degree, 0)
    return {"sym": half[:, None] * adj * half[None, :], "row": full[:, None] * adj, "none": adj}[normalization]


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("normalization", ["sym", "row", "none"])
@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weighted"])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_against_dense(directed, weighted, normalization, self_loops, fields, monkeypatch):
    monkeypatch.setattr(fullgnn.graph.normalize, "ENTRIES_PER_BLOCK", 16)  # several blocks on a small graph
    dense = random_dense(directed, weighted)
    graph = Graph.from_scipy(scipy.sparse.csr_array(dense), **fields(len(dense)))
    adj = normalized_adjacency(graph, normalization, self_loops, dtype=np.float64)
    np.testing.assert_allclose(adj.toarray(), oracle(dense, normalization, self_loops), rtol=1e-14, atol=0)
    assert adj.indices.dtype == np.int32 and adj.has_sorted_indices and np.isfinite(adj.data).all()
    single = normalized_adjacency(graph, normalization, self_loops)
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single.data, adj.data.astype(np.float32))  # computed in double, then cast
    if not directed and normalization != "row":
        assert is_symmetric(adj) and is_symmetric(single)  # to the bit


def test_self_loop_is_replaced_not_added(fields):
    graph = Graph.from_scipy(scipy.sparse.csr_array([[5.0, 2.0], [0.0, -1.0]]), **fields(2))
    np.testing.assert_array_equal(normalized_adjacency(graph, "none").toarray(), [[1, 2], [0, 1]])


def test_graph_without_edges(fields):
    graph = Graph.from_edge_index([[], []], **fields(3))
    assert normalized_adjacency(graph, self_loops=False).nnz == 0
    np.testing.assert_array_equal(normalized_adjacency(graph).toarray(), np.eye(3))


def test_negative_row_sum_is_refused_unless_unused(fields):
    graph = Graph.from_scipy(scipy.sparse.csr_array([[0.0, -3.0], [1.0, 0.0]]), **fields(2))
    for normalization in ("sym", "row"):
        with pytest.raises(DataError, match="row 0 of the adjacency sums to -2"):
            normalized_adjacency(graph, normalization)
    assert normalized_adjacency(graph, "none")[0, 1] == -3


def test_unknown_name(fields):
    with pytest.raises(ConfigError, match="'symmetric': choose one of sym, row, none"):
        normalized_adjacency(Graph.from_edge_index([[0], [1]], **fields(2)), "symmetric")


def test_graph_is_not_written_to(fields):
    graph = Graph.from_scipy(scipy.sparse.csr_array(random_dense(True, True)), **fields(40))
    before = graph.weight.copy()
    normalized_adjacency(graph)
    np.testing.assert_array_equal(graph.weight, before)


@pytest.mark.parametrize(
    "dense, expected",
    [
        ([[0, 1], [1, 0]], True),
        ([[0, 1], [0, 0]], False),
        ([[0, 1], [2, 0]], False),
        ([[3, 0], [0, 0]], True),
        ([[0, 1, 0], [1, 0, 0]], False),
    ],
)
def test_is_symmetric(dense, expected):
    assert is_symmetric(scipy.sparse.csr_matrix(dense)) is expected


def test_is_symmetric_with_unsorted_duplicates():
    adj = scipy.sparse.csr_array(([1, 1, 2], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    assert is_symmetric(adj) and adj.nnz == 3
