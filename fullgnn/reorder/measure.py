"""How good an order is: bandwidth, edge cut, entries and needed rows per block, balance."""

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

    For the locality of an order take equal chunks: ``Partition.equal(num_nodes, num_nodes // chunk_size)``.
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


def needed_rows(adj: sparse.csr_array, partition: Partition) -> np.ndarray:
    """(num_parts, num_parts) int64: entry ``[i, j]`` counts the rows of part j that block row i reads.

    These are the distinct columns of block (i, j). Off the diagonal they are what rank i must receive from rank j
    for one product, where a broadcast sends all of part j.
    """
    _check_fits(adj, partition)
    counts = []
    for part in range(partition.num_parts):
        rows = partition.slice(part)
        is_read = np.zeros(partition.num_nodes, dtype=bool)
        is_read[adj.indices[adj.indptr[rows.start] : adj.indptr[rows.stop]]] = True
        counts.append(np.diff(np.searchsorted(np.flatnonzero(is_read), partition.bounds)))
    return np.stack(counts)


def halo_share(needed: np.ndarray, num_nodes: int) -> float:
    """What :func:`needed_rows` off the diagonal is of the ``(b - 1) * num_nodes`` rows that b broadcasts send; 0 if
    there is one part."""
    num_sent = (needed.shape[0] - 1) * num_nodes
    return float((needed.sum() - np.trace(needed)) / max(num_sent, 1))


def imbalance(load: np.ndarray) -> float:
    """The heaviest over the mean of any load of the parts: 1 is perfect; also without any load."""
    return float(load.max() / load.mean()) if load.any() else 1.0


def _part_id(adj: sparse.csr_array, partition: Partition) -> np.ndarray:
    """(n,) int64, the part of each node."""
    _check_fits(adj, partition)
    return np.repeat(np.arange(partition.num_parts), partition.sizes)


def _check_fits(adj: sparse.csr_array, partition: Partition) -> None:
    num_rows, num_columns = adj.shape
    if not num_rows == num_columns == partition.num_nodes:
        raise PartitionError(
            f"A partition of {partition.num_nodes} nodes does not fit a {num_rows} x {num_columns} adjacency:"
            " cut the graph that you measure."
        )
