"""Consecutive parts with equal work."""

from bisect import bisect_left

import numpy as np
from scipy import sparse

from fullgnn.partition.cut import Cut
from fullgnn.partition.partition import Partition, check_num_parts, num_nodes_of


def nnz(adj: sparse.csr_array, train_mask: np.ndarray, num_parts: int, seed: int) -> Cut:
    """Consecutive nodes in the given order, cut so that every part stores about as many entries.

    The heaviest part is as light as consecutive parts can be. Weights are those of :func:`row_weight`.
    """
    return Cut.consecutive(balanced(row_weight(adj), num_parts), used="nnz")


def row_weight(adj: sparse.csr_array) -> np.ndarray:
    """(n,) int64, the stored entries of each row once normalisation has filled the diagonal: what the row costs.

    With ``self_loops=false`` this is one too many for a row without a self-loop; it then stands for the row's
    dense work, and keeps nodes without edges from gathering in one part.
    """
    num_nodes_of(adj)
    return np.diff(adj.indptr).astype(np.int64) + (adj.diagonal() == 0)


def balanced(weight: np.ndarray, num_parts: int) -> Partition:
    """Cut consecutive items of ``weight`` (n,) positive integers; no other bounds have a lighter heaviest part.

    The smallest possible limit on the heaviest part is searched for by bisection: filling parts to the limit one
    after the other tells whether it can be kept (Pinar and Aykanat, "Fast optimal load balancing algorithms for 1D
    partitioning", 2004). Filled like this the last parts would be nearly empty, so each bound then goes as close to
    its ideal place as the limit lets it.
    """
    check_num_parts(weight.size, num_parts)
    before = np.concatenate([[0], np.cumsum(weight, dtype=np.int64)])  # (n + 1,), what lies before each bound
    total = before[-1].item()

    def farthest(bound: int, limit: int) -> int:
        """Where the part that starts at ``bound`` ends at the latest."""
        return np.searchsorted(before, before[bound] + limit, side="right").item() - 1

    def is_enough(limit: int) -> bool:
        bound = 0
        for _ in range(num_parts):
            bound = farthest(bound, limit)
        return bound == weight.size

    mean = -(-total // num_parts)
    limit = mean + bisect_left(range(mean, mean + weight.max(initial=0).item()), True, key=is_enough)

    earliest = [weight.size]  # of each bound, last first: what the parts after it can hold
    for _ in range(num_parts - 1):
        earliest.append(np.searchsorted(before, before[earliest[-1]] - limit).item())
    ideal = np.searchsorted(before[:-1] + weight / 2, total / num_parts * np.arange(num_parts)).tolist()  # the nearest
    bounds = [0]
    for part in range(1, num_parts):
        first, last = max(bounds[-1], earliest[num_parts - part]), farthest(bounds[-1], limit)
        bounds.append(min(max(ideal[part], first), last))
    return Partition(np.array([*bounds, weight.size]))
