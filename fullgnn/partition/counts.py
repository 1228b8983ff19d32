"""Measure a node order and its blocks by the entries of the adjacency: bandwidth, edge cut, entries, columns read."""

import numpy as np
from scipy import sparse

from fullgnn.errors import PartitionError
from fullgnn.partition import Partition


def bandwidth(adj: sparse.csr_array) -> int:
    """The largest ``|row - column|`` of a stored entry; 0 without entries."""
    row = np.repeat(np.arange(adj.shape[0], dtype=np.int64), np.diff(adj.indptr))
    return int(np.abs(row - adj.indices).max(initial=0))


def edge_cut(adj: sparse.csr_array, partition: Partition) -> float:
    """Fraction of stored entries whose two ends lie in different parts; 0 without entries.

    To measure the locality of an order, use equal chunks: ``Partition.equal(num_nodes, num_nodes // chunk_size)``.
    """
    _check_fits(adj, partition, partition)
    part_id = np.repeat(np.arange(partition.num_parts), partition.sizes)
    row_part = np.repeat(part_id, np.diff(adj.indptr))
    return float(np.count_nonzero(row_part != part_id[adj.indices]) / max(adj.nnz, 1))


def block_nnz(adj: sparse.csr_array, partition: Partition, columns: Partition | None = None) -> np.ndarray:
    """(num_parts, num_parts) int64: entry ``[i, j]`` counts the stored entries of block (i, j).

    Args:
        partition: partition of the rows of ``adj``.
        columns: partition of its columns; None: the same.
    """
    columns = partition if columns is None else columns
    _check_fits(adj, partition, columns)
    part_id = np.repeat(np.arange(columns.num_parts), columns.sizes)
    block_rows = [_columns(adj, partition.slice(part)) for part in range(partition.num_parts)]
    return np.stack([np.bincount(part_id[column], minlength=columns.num_parts) for column in block_rows])


def _columns(adj: sparse.csr_array, rows: slice) -> np.ndarray:
    """A view of the columns of all entries of consecutive ``rows``."""
    return adj.indices[adj.indptr[rows.start] : adj.indptr[rows.stop]]


def _check_fits(adj: sparse.csr_array, partition: Partition, columns: Partition) -> None:
    num_rows, num_columns = adj.shape
    if adj.shape != (partition.num_nodes, columns.num_nodes):
        raise PartitionError(
            f"A partition of {partition.num_nodes} nodes does not fit a {num_rows} x {num_columns} adjacency:"
            " cut the graph that you measure."
        )
