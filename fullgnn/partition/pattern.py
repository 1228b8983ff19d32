"""The undirected graph that RCM, METIS and SlashBurn work on."""

import numpy as np
from scipy import sparse


def undirected(adj: sparse.csr_array) -> sparse.csr_array:
    """The pattern of ``A + A^T`` without self-loops: (n, n) boolean CSR, rows sorted, no entry twice.

    Every stored entry is an edge, whatever its value. If ``adj`` is symmetric, its transpose is not made.
    """
    from fullgnn.graph._csr_cpu import is_symmetric  # imported here, since it imports numba

    if not adj.has_canonical_format:
        adj = adj.copy()
        adj.sum_duplicates()
    pattern = _without_diagonal(
        sparse.csr_array((np.ones(len(adj.indices), bool), adj.indices, adj.indptr), shape=adj.shape)
    )
    if is_symmetric(pattern.indptr, pattern.indices, None):
        return pattern
    return pattern + pattern.T.tocsr()


def _without_diagonal(pattern: sparse.csr_array) -> sparse.csr_array:
    pattern.has_canonical_format = True
    if not pattern.diagonal().any():
        return pattern
    row = np.repeat(np.arange(pattern.shape[0], dtype=pattern.indices.dtype), np.diff(pattern.indptr))
    edge = row != pattern.indices
    indptr = np.concatenate([[0], np.cumsum(edge)])[pattern.indptr].astype(pattern.indptr.dtype)
    matrix = sparse.csr_array((pattern.data[edge], pattern.indices[edge], indptr), shape=pattern.shape)
    matrix.has_canonical_format = True
    return matrix
