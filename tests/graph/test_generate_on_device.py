"""The generator on the device: exact counts, symmetry, no duplicates, and a node order with dense tiles."""

import numpy as np
import pytest
import scipy.sparse
import torch

from fullgnn.errors import ConfigError
from fullgnn.graph.generate_on_device import random_graph
from fullgnn.kernels.spmm.tiles import tile_density
from tests.graph.symmetry import is_symmetric

CPU = torch.device("cpu")
NUM_NODES, NUM_ENTRIES = 6000, 180_000


def to_scipy(csr):
    data = np.ones(csr.nnz, np.int8)
    return scipy.sparse.csr_array((data, csr.indices.numpy(), csr.indptr.numpy()), shape=(csr.num_cols,) * 2)


def density_shares(csr):
    return tile_density(csr.indptr, csr.indices, csr.num_cols)


@pytest.fixture(scope="module")
def graph():
    return random_graph(NUM_NODES, NUM_ENTRIES, 10, 0.15, 3, CPU)


@pytest.mark.parametrize("ordered", [False, True])
def test_counts_are_exact_and_the_matrix_is_simple(graph, ordered):
    csr = graph.csr(graph.perm if ordered else None)
    assert csr.indptr.dtype == csr.indices.dtype == torch.int32
    adj = to_scipy(csr)
    assert adj.has_canonical_format  # sorted, no duplicates
    assert adj.nnz == NUM_ENTRIES + NUM_NODES and (adj.diagonal() == 1).all()
    assert is_symmetric(adj)


def test_an_order_renames_the_nodes_and_nothing_else(graph):
    perm = graph.perm.numpy()
    assert np.array_equal(np.sort(perm), np.arange(NUM_NODES))
    expected = to_scipy(graph.csr())[perm][:, perm]
    assert (expected != to_scipy(graph.csr(graph.perm))).nnz == 0


def test_the_order_has_structure(graph):
    """Each node's community is a run of ids, and tiles that are more than 10 % full hold many of the entries."""
    community = graph.community[graph.perm]
    assert (community.diff() >= 0).all() and community.unique().tolist() == list(range(10))
    ordered, shuffled = density_shares(graph.csr(graph.perm)), density_shares(graph.csr())
    assert sum(ordered) == pytest.approx(1) and sum(shuffled) == pytest.approx(1)
    assert sum(ordered[4:]) > 0.25 and sum(shuffled[4:]) < 0.01


def test_degrees_are_skewed(graph):
    degree = graph.csr().indptr.diff().double()
    assert degree.max() > 5 * degree.mean() and degree.min() < 0.6 * degree.mean()


def test_the_same_seed_is_the_same_graph(graph):
    again, other = (random_graph(NUM_NODES, NUM_ENTRIES, 10, 0.15, seed, CPU) for seed in (3, 4))
    assert torch.equal(graph.pairs, again.pairs) and not torch.equal(graph.pairs, other.pairs)


def test_what_cannot_be_filled_is_refused():
    with pytest.raises(ConfigError, match="odd"):
        random_graph(100, 301, 2, 0.15, 0, CPU)
    with pytest.raises(ConfigError, match="denser"):
        random_graph(100, 9000, 2, 0.15, 0, CPU)
