import numpy as np
import pytest
from scipy import sparse

from fullgnn.errors import PartitionError
from fullgnn.partition import Partition, contiguous
from fullgnn.reorder.measure import bandwidth, block_nnz, edge_cut


@pytest.mark.parametrize("bounds", [[0, 30], [0, 10, 20, 30], [0, 0, 7, 7, 30, 30]])
def test_against_the_dense_matrix(bounds: list[int]) -> None:
    dense = np.random.default_rng(0).random((30, 30)) < 0.1
    adj, partition = sparse.csr_array(dense), Partition(np.array(bounds))
    parts = [partition.slice(part) for part in range(partition.num_parts)]
    expected = np.array([[dense[rows, columns].sum() for columns in parts] for rows in parts])
    counted = block_nnz(adj, partition)
    assert np.array_equal(counted, expected) and counted.dtype == np.int64
    assert edge_cut(adj, partition) == (adj.nnz - np.trace(expected)) / adj.nnz
    row, column = np.nonzero(dense)
    assert bandwidth(adj) == np.abs(row - column).max()


def test_of_tiny_graphs(tiny_graph) -> None:
    num_nodes = tiny_graph.shape[0]
    assert 0 <= bandwidth(tiny_graph) < max(num_nodes, 1)
    assert edge_cut(tiny_graph, contiguous(num_nodes, 1)) == 0
    assert block_nnz(tiny_graph, contiguous(num_nodes, 3)).sum() == tiny_graph.nnz


def test_refuse_a_partition_of_another_graph() -> None:
    adj = sparse.csr_array(np.eye(4))
    for measure in (edge_cut, block_nnz):
        with pytest.raises(PartitionError, match="5 nodes does not fit a 4 x 4"):
            measure(adj, contiguous(5, 2))
