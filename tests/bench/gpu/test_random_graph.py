"""The generator on the device: exact counts, symmetry, no duplicates, and an order with dense tiles in it."""

import numpy as np
import pytest
import scipy.sparse
import torch

from fullgnn.bench.gpu.lookalikes import LOOKALIKES, Lookalike
from fullgnn.bench.gpu.random_graph import hierarchical_sbm
from fullgnn.bench.gpu.training import make_problem
from fullgnn.errors import ConfigError
from fullgnn.graph import is_symmetric
from fullgnn.kernels.spmm.tiles import tile_density

CPU = torch.device("cpu")
NUM_NODES, NUM_ENTRIES = 6000, 180_000


def to_scipy(csr):
    data = np.ones(csr.nnz, np.int8)
    return scipy.sparse.csr_array((data, csr.indices.numpy(), csr.indptr.numpy()), shape=(csr.num_cols,) * 2)


def density_shares(csr):
    return tile_density(csr.indptr, csr.indices, csr.num_cols)


@pytest.fixture(scope="module")
def graph():
    return hierarchical_sbm(NUM_NODES, NUM_ENTRIES, 10, 0.15, 3, CPU)


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
    again, other = (hierarchical_sbm(NUM_NODES, NUM_ENTRIES, 10, 0.15, seed, CPU) for seed in (3, 4))
    assert torch.equal(graph.pairs, again.pairs) and not torch.equal(graph.pairs, other.pairs)


def test_what_cannot_be_filled_is_refused():
    with pytest.raises(ConfigError, match="odd"):
        hierarchical_sbm(100, 301, 2, 0.15, 0, CPU)
    with pytest.raises(ConfigError, match="denser"):
        hierarchical_sbm(100, 9000, 2, 0.15, 0, CPU)


def test_sizes_are_those_of_the_configuration():
    shape = LOOKALIKES["products-like"]
    assert shape == Lookalike(2_449_029, 126_167_181, 100, 47, 64)
    assert shape.scaled(1.0) == (shape.num_nodes, (shape.num_edges - shape.num_nodes) // 2 * 2)


def test_labels_follow_the_nodes(graph):
    shape = LOOKALIKES["archaea-like"]
    problem = make_problem(graph, graph.csr(graph.perm), graph.perm, shape)
    assert problem.features.shape == (NUM_NODES, 602) and problem.features.dtype == torch.float32
    assert torch.equal(problem.labels, graph.community[graph.perm])
    assert len(problem.train_index) / NUM_NODES == pytest.approx(0.6, abs=0.03)
    assert problem.widths == [602, 128, 10] and problem.graph.num_edges == 0
