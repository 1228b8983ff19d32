"""Whether a matrix is symmetric."""

from typing import Any


def is_symmetric(adj: Any) -> bool:
    """Whether a sparse matrix equals its transpose exactly."""
    return adj.shape[0] == adj.shape[1] and (adj != adj.T).nnz == 0
