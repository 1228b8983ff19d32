from functools import partial

import numpy as np
import pytest
from scipy import sparse

from fullgnn.errors import ConfigError, PartitionError
from fullgnn.partition import contiguous
from fullgnn.reorder import blockwise, degree, metis, none, rcm, shuffle, slashburn
from fullgnn.reorder.measure import block_nnz

METHODS = [none, shuffle, degree, rcm, slashburn, partial(metis, cluster_size=20)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_blocks", [1, 3, 8])
def test_no_row_leaves_its_block_and_no_block_changes_its_nnz(method, num_blocks: int, planted) -> None:
    perm = blockwise(planted, method, num_blocks, seed=4)
    partition = contiguous(1000, num_blocks)
    for part in range(num_blocks):
        rows = partition.slice(part)
        assert np.array_equal(np.sort(perm[rows]), np.arange(rows.start, rows.stop))
        assert np.array_equal(perm[rows] - rows.start, method(planted[rows, rows], 4))
    assert np.array_equal(block_nnz(planted[perm][:, perm], partition), block_nnz(planted, partition))


@pytest.mark.parametrize("method", METHODS)
def test_one_block_is_the_whole_graph(method, planted) -> None:
    assert np.array_equal(blockwise(planted, method, 1, seed=4), method(planted, 4))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_blocks", [1, 2, 5, 20])
def test_tiny_graphs_and_more_blocks_than_nodes(method, num_blocks: int, tiny_graph) -> None:
    perm = blockwise(tiny_graph, method, num_blocks, seed=0)
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
    with pytest.raises(PartitionError, match="lossy did not return a permutation of the 3 nodes of block 0"):
        blockwise(adj, partial(lossy, order=order), 2, seed=0)


def test_an_empty_list_is_a_permutation_of_an_empty_block() -> None:
    adj = sparse.csr_array((1, 1))
    assert blockwise(adj, lambda block, seed: list(range(block.shape[0])), 3, seed=0).tolist() == [0]


@pytest.mark.parametrize("num_blocks", [0, -2])
def test_refuses_less_than_one_block(num_blocks: int, planted) -> None:
    with pytest.raises(ConfigError, match="num_blocks"):
        blockwise(planted, rcm, num_blocks, seed=0)


def test_refuses_a_rectangle(planted) -> None:
    with pytest.raises(PartitionError, match="square"):
        blockwise(planted[:5], rcm, 2, seed=0)
