"""Normalised adjacency against a dense float64 oracle, element by element."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse

import fullgnn.graph.normalize
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import (
    Graph,
    Propagation,
    check_entries,
    normalized_entries,
    row_sums,
    with_self_loops,
)
from fullgnn.graph.checks import check_range
from fullgnn.graph.normalize import check_rows, sums_of_rows
from tests.graph.symmetry import is_symmetric


def random_dense(directed, weighted, seed=0, num_nodes=40):
    """A sparse random matrix with some self-loops, an isolated node (5) and a node that is read but reads none (6)."""
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


def normalized_adjacency(graph, normalization="sym", self_loops=True, dtype=np.float32, row_sum=None):
    """The matrix of one propagation, from its parts."""
    propagation = Propagation(normalization, self_loops)
    if propagation.needs_row_sums and row_sum is None:
        row_sum = row_sums(graph, self_loops)
    check_entries(graph, propagation, row_sum, dtype)
    adj = graph.adjacency(np.float64)
    adj = with_self_loops(adj) if self_loops else adj
    scales = propagation.scales(row_sum) if propagation.needs_row_sums else (None, None)
    adj.data = normalized_entries(adj, *scales, dtype)
    return adj


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
        assert is_symmetric(adj) and is_symmetric(single)  # bitwise


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
        with pytest.raises(DataError, match="with which node 0 reads sum to -2"):
            normalized_adjacency(graph, normalization)
    assert normalized_adjacency(graph, "none")[0, 1] == -3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_that_cancel_are_refused_with_their_number(dtype, fields):
    """3.9 - 1.9 - 1.9 - 1.1 + 1 (the self-loop) = 0 in any order, up to rounding."""
    weights = np.array([3.9, -1.9, -1.9, -1.1], dtype)
    for number, order in enumerate(itertools.permutations(range(4))):
        dense = np.zeros((6, 6), dtype)
        dense[0, 1:5] = dense[5, 1:5] = weights[list(order)]
        dense[1, 2] = 2.5
        perm = np.random.default_rng(number).permutation(6)
        graph = Graph.from_scipy(scipy.sparse.csr_array(dense), **fields(6))
        for ordered in (graph, graph.permute(perm)):
            with pytest.raises(DataError, match=r"next to nothing beside .* \(2 nodes are like that\)"):
                row_sums(ordered)
    small = Graph.from_scipy(scipy.sparse.csr_array(np.diag([3e-6], 1).astype(dtype)), **fields(2))
    np.testing.assert_allclose(row_sums(small, self_loops=False), [3e-6, 0], rtol=1e-7)  # small, but nothing cancels


@pytest.mark.parametrize(
    ("rest", "refused"), [(0, True), (0.99e-6, True), (-1e-3, True), (1.01e-6, False), (0.5, False)]
)
def test_the_least_sum_is_a_millionth_of_the_magnitudes(rest, refused, fields):
    weights = np.array([[0, (1 + rest) / 2, (rest - 1) / 2], [0, 0, 0], [1.0, 0, 0]])  # of magnitude 1
    graph = Graph.from_scipy(scipy.sparse.csr_array(weights), **fields(3))
    if refused:
        with pytest.raises(
            DataError, match=r"node 0 reads sum to .* \(no other node is like that\).*normalization=none"
        ):
            row_sums(graph, self_loops=False)
    else:
        assert row_sums(graph, self_loops=False)[0] == pytest.approx(rest, rel=1e-9)
    no_longer = Graph.from_scipy(scipy.sparse.csr_array(weights * [[0], [0], [1]]), **fields(3))
    sums = row_sums(no_longer, self_loops=False)
    assert sums[:2].tolist() == [0, 0] and sums[2] > 0  # without neighbours: 0, and not refused


def test_row_sums_are_exact(fields):
    """Ten thousand weights that cancel to a millionth, compared with sums of ``Fraction``."""
    rng = np.random.default_rng(0)
    half = rng.standard_normal(5000) * 10.0 ** rng.integers(-8, 8, 5000)
    row = rng.permutation(np.concatenate([half, -half, [3.5e-6]]))
    dense = scipy.sparse.csr_array((row, (np.zeros(10_001, int), np.arange(10_001))), shape=(10_001, 10_001))
    sums = sums_of_rows(Graph.from_scipy(dense, **fields(10_001)).adjacency(), False, np.dtype(np.float64))
    assert sums.total[0] == pytest.approx(float(sum(map(Fraction, row.tolist()))), rel=1e-15)
    assert sums.unusable[:2] == (1, 0) and sums.unusable.total == sums.total[0]


def test_sums_whose_reciprocal_is_infinite_are_refused(fields):
    dense = np.array([[0, 1e-310, 0], [0, 0, 2.5], [0, 2.5, 0]])
    with pytest.raises(DataError, match="with which node 0 reads sum to less than float64 holds: scale the weights"):
        row_sums(Graph.from_scipy(scipy.sparse.csr_array(dense), **fields(3)), self_loops=False)


def test_what_float32_does_not_hold_is_refused_by_name(fields):
    dense = np.array([[0, 2.0, 0], [0, 0, 1e39], [3.0, 0, 0]])
    graph = Graph.from_scipy(scipy.sparse.csr_array(dense), **fields(3))
    perm = np.array([2, 0, 1])
    with pytest.raises(DataError, match=r"weight 1e\+39 with which node 1 reads from node 2 is beyond float32: scale"):
        check_rows(
            graph.permute(perm).adjacency(), Propagation("none"), None, None, np.float32, 0, lambda row: perm[row]
        )
    assert normalized_adjacency(graph, "none", self_loops=False, dtype=np.float64)[1, 2] == 1e39
    assert normalized_adjacency(graph, "row", self_loops=False)[1, 2] == 1
    huge = Graph.from_scipy(scipy.sparse.csr_array(np.full((2, 2), 1.7e308)), **fields(2))
    with pytest.raises(DataError, match="with which node 0 reads sum to more than float64 holds"):
        row_sums(huge, self_loops=False)


def test_features_that_float32_does_not_hold_are_refused_by_name():
    features = np.zeros((4, 3))
    features[2, 1] = -1e39
    with pytest.raises(DataError, match=r"feature 1 of node 2 is -1e\+39, beyond float32: scale"):
        check_range(features, np.float32)
    check_range(features, np.float64)
    check_range(np.clip(features, -3e38, 0), np.float32)


def test_unknown_name(fields):
    with pytest.raises(ConfigError, match="'symmetric': choose one of sym, row, none"):
        normalized_adjacency(Graph.from_edge_index([[0], [1]], **fields(2)), "symmetric")


def test_graph_is_not_written_to(fields):
    graph = Graph.from_scipy(scipy.sparse.csr_array(random_dense(True, True)), **fields(40))
    before = graph.weight.copy()
    normalized_adjacency(graph)
    np.testing.assert_array_equal(graph.weight, before)
