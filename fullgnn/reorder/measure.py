"""How good an order is: bandwidth, edge cut, entries per block."""

import numpy as np
from scipy import sparse

from fullgnn.errors import PartitionError
from fullgnn.partition import Partition


def bandwidth(adj: sparse.csr_array) -> int:
    """The largest ``|row - column|`` of a stored entry; 0 without entries."""
    row = np.repeat(np.arange(adj.shape[0], dtype=np.int64), np.diff(adj.indptr))
    return int(np.abs(row - adj.indices).max(initial=0))


def edge_cut(adj: sparse.csr_array, partition: Partition) -> float:
    """The share of stored entries whose two ends lie in different parts; 0 without entries.

    For the locality of an order take equal chunks: ``contiguous(num_nodes, num_nodes // chunk_size)``.
    """
    part_id = _part_id(adj, partition)
    row_part = np.repeat(part_id, np.diff(adj.indptr))
    return float(np.count_nonzero(row_part != part_id[adj.indices]) / max(adj.nnz, 1))


def block_nnz(adj: sparse.csr_array, partition: Partition) -> np.ndarray:
    """(num_parts, num_parts) int64: entry ``[i, j]`` counts the stored entries of block (i, j)."""
    part_id, num_parts = _part_id(adj, partition), partition.num_parts
    first = adj.indptr[partition.bounds]  # where the entries of each block row start
    block_rows = [adj.indices[first[part] : first[part + 1]] for part in range(num_parts)]
    return np.stack([np.bincount(part_id[columns], minlength=num_parts) for columns in block_rows])


def _part_id(adj: sparse.csr_array, partition: Partition) -> np.ndarray:
    """(n,) int64, the part of each node."""
    num_rows, num_columns = adj.shape
    if not num_rows == num_columns == partition.num_nodes:
        raise PartitionError(
            f"A partition of {partition.num_nodes} nodes does not fit a {num_rows} x {num_columns} adjacency:"
            " cut the graph that you measure."
        )
    return np.repeat(np.arange(partition.num_parts), partition.sizes)
