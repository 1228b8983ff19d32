"""Random graphs: exact counts, measurable structure, determinism, and errors for impossible requests."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse

from fullgnn.errors import ConfigError
from fullgnn.graph import hierarchical_sbm, rmat
from tests.graph.symmetry import is_symmetric


def to_csr(graph):
    num_nodes = len(graph.indptr) - 1
    return scipy.sparse.csr_array((np.ones(len(graph.indices)), graph.indices, graph.indptr), shape=(num_nodes,) * 2)


def share_within(graph, group):
    """The share of entries inside groups, and the same share in a configuration model of equal degrees."""
    degree = np.diff(graph.indptr)
    row = np.repeat(np.arange(len(degree)), degree)
    mass = np.bincount(group, degree) / degree.sum()
    return (group[row] == group[graph.indices]).mean(), (mass**2).sum()


@pytest.fixture(scope="module")
def sparse_graph():
    return hierarchical_sbm(num_nodes=6000, num_entries=180_000, num_communities=10, seed=3)


def test_counts_are_exact_and_matrix_is_simple(sparse_graph):
    adj = to_csr(sparse_graph)
    assert adj.nnz == 180_000 and sparse_graph.indices.dtype == np.int32
    assert adj.has_canonical_format  # sorted, no duplicates
    assert is_symmetric(adj) and not adj.diagonal().any()


def test_every_level_holds_more_edges_than_chance(sparse_graph):
    shares, chances = zip(*(share_within(sparse_graph, group) for group in sparse_graph.groups), strict=True)
    own = -np.diff([*shares, 0.0])  # entries whose finest common group is of this level
    np.testing.assert_allclose(own, 0.85 / len(shares), atol=0.03)  # global_share=0.15; the rest in equal shares
    assert len(shares) == 3 and chances[-1] < 0.01  # a configuration model has no cliques
    assert all(share > 3 * chance for share, chance in zip(shares, chances, strict=True))


def test_groups_are_nested_and_cliques_small(sparse_graph):
    for coarse, fine in pairwise(sparse_graph.groups):
        pairs = np.unique(np.stack([coarse, fine]), axis=1)
        assert pairs.shape[1] == fine.max() + 1  # every fine group lies in one coarse group
    assert len(np.unique(sparse_graph.groups[0])) == 10
    sizes = np.bincount(sparse_graph.groups[-1])
    assert sizes.max() <= 50 and np.median(sizes) >= 20


def test_degrees_have_a_heavy_but_capped_tail(sparse_graph):
    degree = np.diff(sparse_graph.indptr)
    assert degree.max() > 5 * degree.mean() and degree.max() < 30 * degree.mean()
    assert np.median(degree) < degree.mean()


def test_node_ids_are_shuffled(sparse_graph):
    group = sparse_graph.groups[-1]
    assert (group[1:] == group[:-1]).mean() < 0.02


def test_global_share_is_felt():
    within = [
        share_within(graph, graph.groups[0])[0]
        for graph in (hierarchical_sbm(3000, 60_000, 5, global_share) for global_share in (0.0, 0.5))
    ]
    assert within[0] > 0.95 and within[1] < 0.6


@pytest.mark.parametrize(
    ("num_nodes", "communities"), [(2, 1), (6, 1), (10, 3), (11, 11), (50, 2), (300, 1), (1000, 7)]
)
@pytest.mark.parametrize("global_share", [0.0, 0.15, 1.0])
def test_terminates_at_the_density_limit(num_nodes, communities, global_share):
    num_entries = num_nodes * (num_nodes - 1) // 10 * 2
    adj = to_csr(hierarchical_sbm(num_nodes, num_entries, communities, global_share, seed=1))
    assert adj.nnz == num_entries and adj.has_canonical_format
    assert is_symmetric(adj) and not adj.diagonal().any()


def test_no_edges():
    assert len(hierarchical_sbm(10, 0, 2).indices) == 0
    assert len(rmat(10, 0, 2, 0.57, 0.19, 0.19).indices) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: hierarchical_sbm(500, 8000, 4, seed=seed),
        lambda seed: rmat(500, 8000, 4, 0.57, 0.19, 0.19, seed=seed),
    ],
    ids=["sbm", "rmat"],
)
def test_deterministic_by_seed(make):
    first, again, other = make(7), make(7), make(8)
    np.testing.assert_array_equal(first.indices, again.indices)
    np.testing.assert_array_equal(first.groups, again.groups)
    assert not np.array_equal(first.indices, other.indices)


@pytest.mark.parametrize("num_nodes", [500, 512, 777])
def test_rmat_is_directed_skewed_and_exact(num_nodes):
    adj = to_csr(rmat(num_nodes, 20_000, 4, 0.57, 0.19, 0.19))
    assert adj.nnz == 20_000 and adj.has_canonical_format and not adj.diagonal().any()
    assert not is_symmetric(adj)
    for degree in (np.diff(adj.indptr), np.bincount(adj.indices, minlength=num_nodes)):
        assert degree.max() > 4 * degree.mean()


def test_rmat_follows_the_quadrants():
    # The graph is sparse, because redrawn duplicates would thin out the densest quadrant.
    graph = rmat(1 << 14, 10_000, 2, 0.4, 0.1, 0.2)  # two groups: upper and lower half of the unshuffled ids
    row_group = np.repeat(graph.groups[0], np.diff(graph.indptr))
    share = np.bincount(2 * row_group + graph.groups[0][graph.indices], minlength=4) / 10_000
    np.testing.assert_allclose(share, [0.4, 0.1, 0.2, 0.3], atol=0.02)  # four standard deviations


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: hierarchical_sbm(100, 1982, 4),
            "denser than 20% .at most 1980 entries.: lower degree_scale",
        ),
        (lambda: rmat(100, 1981, 4, 0.57, 0.19, 0.19), "denser than 20%"),
        (lambda: hierarchical_sbm(100, 101, 4), "is odd"),
        (lambda: hierarchical_sbm(3, 0, 4), "3 nodes cannot form 4 communities"),
        (lambda: hierarchical_sbm(0, 0, 4), "make no graph"),
        (lambda: hierarchical_sbm(10, -2, 4), "make no graph"),
        (lambda: hierarchical_sbm(100, 100, 4, global_share=1.5), "global_share=1.5 is not a share"),
        (lambda: rmat(100, 100, 4, 0.6, 0.3, 0.3), "no quadrant probabilities"),
        (lambda: rmat(3, 1, 4, 0.57, 0.19, 0.19), "cannot form 4 groups"),
    ],
)
def test_impossible_requests(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
