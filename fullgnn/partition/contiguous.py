"""Parts of equal size, in the order the nodes already have."""

import numpy as np

from fullgnn.errors import PartitionError
from fullgnn.partition.partition import Partition


def contiguous(num_nodes: int, num_parts: int) -> Partition:
    """Cut ``num_nodes`` nodes into ``num_parts`` consecutive parts whose sizes differ by at most one.

    Part ``i`` starts at ``floor(i * num_nodes / num_parts)``, in exact integers: every rank finds the
    same bounds from the two numbers alone. With fewer nodes than parts some parts are empty.
    """
    if num_nodes < 0 or num_parts < 1:
        raise PartitionError(f"Cannot cut {num_nodes} nodes into {num_parts} parts: give at least 1 part.")
    return Partition(np.arange(num_parts + 1, dtype=np.int64) * num_nodes // num_parts)
