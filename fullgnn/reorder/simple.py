"""The orders that need one line each: none, shuffle, degree."""

import numpy as np
from scipy import sparse


def none(adj: sparse.csr_array, seed: int) -> np.ndarray:
    """Keep the order of the dataset."""
    return np.arange(adj.shape[0], dtype=np.int64)


def shuffle(adj: sparse.csr_array, seed: int) -> np.ndarray:
    """A random order: it balances the blocks and destroys locality, and is the baseline of the other orders."""
    return np.random.default_rng(seed).permutation(adj.shape[0]).astype(np.int64, copy=False)


def degree(adj: sparse.csr_array, seed: int) -> np.ndarray:
    """Order by descending degree, the number of stored entries of the row. Nodes of equal degree keep their order."""
    return np.argsort(-np.diff(adj.indptr), kind="stable").astype(np.int64, copy=False)
