"""The orders that need no more than a line: none, shuffle, degree."""

import numpy as np
from scipy import sparse


def none(adj: sparse.csr_array, seed: int) -> np.ndarray:
    """Keep the order of the dataset."""
    return np.arange(adj.shape[0], dtype=np.int64)


def shuffle(adj: sparse.csr_array, seed: int) -> np.ndarray:
    """A random order: balances the blocks and destroys locality, the baseline of the others."""
    return np.random.default_rng(seed).permutation(adj.shape[0]).astype(np.int64, copy=False)


def degree(adj: sparse.csr_array, seed: int) -> np.ndarray:
    """Descending degree, the stored entries of the row: how many a node reads from. Equal degrees keep their order."""
    return np.argsort(-np.diff(adj.indptr), kind="stable").astype(np.int64, copy=False)
