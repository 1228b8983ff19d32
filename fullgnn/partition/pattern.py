"""The undirected graph that RCM, METIS and SlashBurn work on."""

import numpy as np
from scipy import sparse


def undirected(adj: sparse.csr_array) -> sparse.csr_array:
    """The pattern of ``A + A^T`` without self-loops: (n, n) boolean CSR, rows sorted, no entry twice.

    Every stored entry is an edge, whatever its value. The transpose tells whether ``adj`` is symmetric; if it is,
    the sum (half of the work) is skipped.
    """
    num_nodes = adj.shape[0]
    row = np.repeat(np.arange(num_nodes, dtype=adj.indices.dtype), np.diff(adj.indptr))
    edge = row != adj.indices
    entries = (np.ones(np.count_nonzero(edge), dtype=bool), (row[edge], adj.indices[edge]))
    pattern = sparse.coo_array(entries, shape=adj.shape).tocsr()  # sorted, duplicates merged
    reverse = pattern.T.tocsr()
    if np.array_equal(pattern.indptr, reverse.indptr) and np.array_equal(pattern.indices, reverse.indices):
        return pattern
    return pattern + reverse
