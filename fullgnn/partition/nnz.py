"""Parts of consecutive nodes with equal work."""

from bisect import bisect_left

import numpy as np
from scipy import sparse

from fullgnn.partition.partition import Cut, Partition, check_num_parts, num_nodes_of


def nnz(adj: sparse.csr_array, train_mask: np.ndarray, num_parts: int, seed: int) -> Cut:
    """Parts of consecutive nodes, in the given order, that store about the same number of entries.

    The heaviest part is as light as consecutive parts allow. The weights are those of :func:`row_weight`.
    """
    return Cut.consecutive(balanced(row_weight(adj), num_parts), used="nnz")


def row_weight(adj: sparse.csr_array) -> np.ndarray:
    """Cost of each row, (n,) int64: its stored entries after normalisation has filled the diagonal.

    With ``self_loops=false`` the count is one too many for a row without a self-loop. The extra entry then stands for
    the row's dense work, and keeps nodes without edges from gathering in one part.
    """
    num_nodes_of(adj)
    return np.diff(adj.indptr).astype(np.int64) + (adj.diagonal() == 0)


def balanced(weight: np.ndarray, num_parts: int) -> Partition:
    """Cut consecutive items of ``weight``, (n,) positive integers, so that the heaviest part is as light as possible.

    Bisection finds the smallest limit on the heaviest part. Filling one part after the other up to a limit tells
    whether the limit is feasible (Pinar and Aykanat, "Fast optimal load balancing algorithms for 1D partitioning",
    2004). Parts filled in this way would leave the last parts nearly empty, so each bound is then placed as close to
    its ideal place as the limit allows.
    """
    check_num_parts(weight.size, num_parts)
    before = np.concatenate([[0], np.cumsum(weight, dtype=np.int64)])  # (n + 1,), the weight before each bound
    total = before[-1].item()

    def farthest(bound: int, limit: int) -> int:
        """The latest end of a part that starts at ``bound``."""
        return np.searchsorted(before, before[bound] + limit, side="right").item() - 1

    def is_enough(limit: int) -> bool:
        bound = 0
        for _ in range(num_parts):
            bound = farthest(bound, limit)
        return bound == weight.size

    mean = -(-total // num_parts)
    limit = mean + bisect_left(range(mean, mean + weight.max(initial=0).item()), True, key=is_enough)

    earliest = [weight.size]  # earliest place of each bound, last bound first: the parts behind it hold the rest
    for _ in range(num_parts - 1):
        earliest.append(np.searchsorted(before, before[earliest[-1]] - limit).item())
    ideal = np.searchsorted(before[:-1] + weight / 2, total / num_parts * np.arange(num_parts)).tolist()  # the nearest
    bounds = [0]
    for part in range(1, num_parts):
        first, last = max(bounds[-1], earliest[num_parts - part]), farthest(bounds[-1], limit)
        bounds.append(min(max(ideal[part], first), last))
    return Partition(np.array([*bounds, weight.size]))
