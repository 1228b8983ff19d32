"""Parts of equal size, in the order the nodes already have."""

import numpy as np
from scipy import sparse

from fullgnn.partition.partition import Cut, Partition, num_nodes_of


def contiguous(adj: sparse.csr_array, train_mask: np.ndarray, num_parts: int, seed: int) -> Cut:
    """Parts of consecutive nodes whose sizes differ by at most one: see :meth:`Partition.equal`."""
    return Cut.consecutive(Partition.equal(num_nodes_of(adj), num_parts), used="contiguous")
