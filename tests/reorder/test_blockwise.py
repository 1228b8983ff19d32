from functools import partial

import numpy as np
import pytest
from scipy import sparse

from fullgnn import partition
from fullgnn.errors import PartitionError
from fullgnn.partition import Cut, Partition
from fullgnn.partition.counts import block_nnz
from fullgnn.reorder import blockwise, degree, metis, none, rcm, shuffle, slashburn

METHODS = [none, shuffle, degree, rcm, slashburn, partial(metis, cluster_size=20)]


def equal(adj: sparse.csr_array, num_parts: int) -> Cut:
    return Cut.consecutive(Partition.equal(adj.shape[0], num_parts), used="contiguous")


@pytest.mark.sample(5)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_parts", [1, 3, 8])
@pytest.mark.parametrize("partitioner", [partition.contiguous, partition.random, partition.metis])
def test_no_node_leaves_its_part_and_no_block_changes_its_nnz(partitioner, num_parts, method, planted) -> None:
    cut = partitioner(planted, np.zeros(1000, bool), num_parts, 0)
    perm, used = blockwise(planted, method, cut, seed=4)
    assert used == getattr(method, "func", method).__name__
    for part in range(num_parts):
        rows = cut.partition.slice(part)
        nodes = cut.perm[rows]
        assert np.array_equal(perm[rows], nodes[method(planted[nodes][:, nodes], 4)])
    before, after = (planted[order][:, order] for order in (cut.perm, perm))
    assert np.array_equal(block_nnz(after, cut.partition), block_nnz(before, cut.partition))


@pytest.mark.parametrize("method", METHODS)
def test_one_part_is_the_whole_graph(method, planted) -> None:
    assert np.array_equal(blockwise(planted, method, equal(planted, 1), seed=4)[0], method(planted, 4))


@pytest.mark.sample(7)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_parts", [1, 2, 5, 20])
@pytest.mark.parametrize("partitioner", [partition.contiguous, partition.random])
def test_tiny_graphs_and_more_parts_than_nodes(partitioner, num_parts: int, method, tiny_graph) -> None:
    perm, _ = blockwise(tiny_graph, method, partitioner(tiny_graph, None, num_parts, 0), seed=0)
    assert perm.dtype == np.int64 and np.array_equal(np.sort(perm), np.arange(tiny_graph.shape[0]))


def lossy(adj: sparse.csr_array, seed: int, order: list | None = None) -> np.ndarray:
    return np.array(order)


@pytest.mark.parametrize(
    "order",
    [[0, 1, 1], [0, 1], [0, 1, 3], [-1, 0, 1], [0.0, 1.0, 2.0], [[0, 1, 2]]],
    ids=["twice", "too short", "too large", "negative", "floats", "two axes"],
)
def test_a_wrong_order_is_refused_by_name(order: list) -> None:
    adj = sparse.csr_array(np.ones((6, 6)))
    with pytest.raises(PartitionError, match="lossy did not return a permutation of the 3 nodes of part 0"):
        blockwise(adj, partial(lossy, order=order), equal(adj, 2), seed=0)


def listed(adj: sparse.csr_array, seed: int) -> list[int]:
    return list(range(adj.shape[0]))


def test_an_empty_list_is_a_permutation_of_an_empty_part() -> None:
    adj = sparse.csr_array((1, 1))
    perm, _ = blockwise(adj, listed, equal(adj, 3), seed=0)  # type: ignore[arg-type]
    assert perm.tolist() == [0]
