"""Parts of equal size, drawn at random."""

import numpy as np
from scipy import sparse

from fullgnn.partition.partition import Cut, Partition, num_nodes_of


def random(adj: sparse.csr_array, train_mask: np.ndarray, num_parts: int, seed: int) -> Cut:
    """Put each node into a random part; the sizes of the parts differ by at most one.

    A random cut balances everything in expectation and keeps no locality: it is the baseline of the other partitioners.
    """
    num_nodes = num_nodes_of(adj)
    sizes = Partition.equal(num_nodes, num_parts).sizes
    part_id = np.repeat(np.arange(num_parts), sizes)
    return Cut.from_part_id(np.random.default_rng(seed).permutation(part_id), num_parts, used="random")
