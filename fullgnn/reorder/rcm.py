"""Reverse Cuthill-McKee: small bandwidth."""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from fullgnn.partition.pattern import undirected


def rcm(adj: sparse.csr_array, seed: int) -> np.ndarray:
    """Breadth-first order from a node of low degree, reversed (Cuthill and McKee 1969; George 1971).

    The order is deterministic: ``seed`` is not used.
    """
    if adj.shape[0] == 0:
        return np.empty(0, dtype=np.int64)
    return reverse_cuthill_mckee(undirected(adj), symmetric_mode=True).astype(np.int64)
