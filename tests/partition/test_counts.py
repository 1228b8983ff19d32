import numpy as np
import pytest
from scipy import sparse

from fullgnn.errors import PartitionError
from fullgnn.partition import Partition
from fullgnn.partition.counts import bandwidth, block_nnz, edge_cut
from fullgnn.partition.partition import imbalance
from fullgnn.partition.prepared import halo_share, rows_read


def reads(adj: sparse.csr_array, partition: Partition) -> np.ndarray:
    return rows_read((np.unique(adj[partition.slice(part)].indices) for part in range(partition.num_parts)), partition)


@pytest.mark.parametrize("bounds", [[0, 30], [0, 10, 20, 30], [0, 0, 7, 7, 30, 30]])
def test_against_the_dense_matrix(bounds: list[int]) -> None:
    dense = np.random.default_rng(0).random((30, 30)) < 0.1
    adj, partition = sparse.csr_array(dense), Partition(np.array(bounds))
    parts = [partition.slice(part) for part in range(partition.num_parts)]
    expected = np.array([[dense[rows, columns].sum() for columns in parts] for rows in parts])
    counted = block_nnz(adj, partition)
    assert np.array_equal(counted, expected) and counted.dtype == np.int64
    assert edge_cut(adj, partition) == (adj.nnz - np.trace(expected)) / adj.nnz
    needed = reads(adj, partition)
    read = np.array([[dense[rows, columns].any(axis=0).sum() for columns in parts] for rows in parts])
    assert np.array_equal(needed, read) and needed.dtype == np.int64
    if len(parts) > 1:
        assert halo_share(needed, 30) == (read.sum() - np.trace(read)) / ((len(parts) - 1) * 30)
    row, column = np.nonzero(dense)
    assert bandwidth(adj) == np.abs(row - column).max()


def test_of_tiny_graphs(tiny_graph) -> None:
    num_nodes = tiny_graph.shape[0]
    assert 0 <= bandwidth(tiny_graph) < max(num_nodes, 1)
    assert edge_cut(tiny_graph, Partition.equal(num_nodes, 1)) == 0
    assert block_nnz(tiny_graph, Partition.equal(num_nodes, 3)).sum() == tiny_graph.nnz
    needed = reads(tiny_graph, Partition.equal(num_nodes, 3))
    assert needed.sum() <= tiny_graph.nnz and 0 <= halo_share(needed, num_nodes) <= 1
    assert halo_share(reads(tiny_graph, Partition.equal(num_nodes, 1)), num_nodes) == 0


def test_a_complete_graph_needs_every_row_and_a_loop_none() -> None:
    partition = Partition(np.array([0, 2, 2, 5]))
    everything = reads(sparse.csr_array(np.ones((5, 5))), partition)
    assert everything.tolist() == [[2, 0, 3], [0, 0, 0], [2, 0, 3]]
    assert halo_share(everything, 5) == 5 / 10  # the empty part reads nothing
    assert halo_share(reads(sparse.eye_array(5, format="csr"), partition), 5) == 0


def test_imbalance_is_the_heaviest_over_the_mean() -> None:
    assert imbalance(np.array([1, 2, 3])) == 1.5 and imbalance(np.zeros(3)) == 1 and imbalance(np.ones(2)) == 1


def test_refuse_a_partition_of_another_graph() -> None:
    adj = sparse.csr_array(np.eye(4))
    for measure in (edge_cut, block_nnz):
        with pytest.raises(PartitionError, match="5 nodes does not fit a 4 x 4"):
            measure(adj, Partition.equal(5, 2))
