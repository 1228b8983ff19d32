"""Move nodes out of parts that are too heavy, with as few additional cut edges as possible."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np
from scipy import sparse

from fullgnn.kernels.support.vectors import compiled


def rebalance(
    pattern: sparse.csr_array,
    part_id: np.ndarray,
    num_parts: int,
    weight: np.ndarray,
    tolerance: float,
    held: np.ndarray | None = None,
) -> None:
    """Move nodes until no part is heavier than ``1 + tolerance`` times the mean, or until no move helps.

    The algorithm is greedy and works in rounds. For every node of a part that is too heavy, it finds, among the
    parts with room for the node, the one with most of its neighbours. Then the nodes move, cheapest in cut edges first.

    Args:
        pattern: (n, n) symmetric.
        part_id: (n,) int64, WRITTEN.
        weight: (n,) int64, 0 or more; nodes of weight 0 do not move.
        held: (n,) int64, a second weight. No node with a second weight moves to a part that would then exceed
            ``1 + tolerance`` times the mean of the second weight.
    """
    held = np.zeros_like(weight) if held is None else held
    load, limit = _load(part_id, num_parts, weight, tolerance)
    held_load, held_limit = _load(part_id, num_parts, held, tolerance)
    if np.any(load > limit):
        relieve(pattern.indptr, pattern.indices, part_id, weight, load, limit, held, held_load, held_limit)


def _load(part_id: np.ndarray, num_parts: int, weight: np.ndarray, tolerance: float) -> tuple[np.ndarray, int]:
    """(num_parts,) int64, the weight of each part; and the largest weight that a part may have."""
    load = np.zeros(num_parts, dtype=np.int64)
    np.add.at(load, part_id, weight)
    mean = load.sum() / num_parts
    return load, max(int(np.ceil(mean)), int(mean * (1 + tolerance)))


@compiled()
def relieve(indptr, indices, part_id, weight, load, limit, held, held_load, held_limit):
    """The loop of :func:`rebalance`. It ends, since every move reduces the total weight above ``limit``.

    Args:
        part_id: (n,) WRITTEN.
        load, held_load: (num_parts,) WRITTEN.
    """
    links = np.empty(load.size, np.int64)
    nodes = np.empty(part_id.size, np.int64)
    costs = np.empty(part_id.size, np.int64)
    moved = True
    while moved:
        moved = False
        num_candidates = 0
        for node in range(part_id.size):
            if weight[node] > 0 and load[part_id[node]] > limit:
                target, cost = best_part(
                    node, indptr, indices, part_id, weight, load, limit, held, held_load, held_limit, links
                )
                if target >= 0:
                    nodes[num_candidates], costs[num_candidates] = node, cost
                    num_candidates += 1
        for candidate in np.argsort(costs[:num_candidates], kind="mergesort"):  # stable: the same on every machine
            node = nodes[candidate]
            part = part_id[node]
            if load[part] <= limit:
                continue
            target, cost = best_part(
                node, indptr, indices, part_id, weight, load, limit, held, held_load, held_limit, links
            )
            if target < 0 or cost > costs[candidate]:  # its target filled up in this round: the next round retries
                continue
            part_id[node] = target
            load[part] -= weight[node]
            load[target] += weight[node]
            held_load[part] -= held[node]
            held_load[target] += held[node]
            moved = True


@numba.njit(nogil=True)
def best_part(node, indptr, indices, part_id, weight, load, limit, held, held_load, held_limit, links):
    """The other part with room for ``node`` that has most of its neighbours (among equals the lightest), or -1; and
    the number of edges that the move would add to the cut.

    Args:
        links: (num_parts,) scratch, receives the number of edges from ``node`` to each part.
    """
    links[:] = 0
    for entry in range(indptr[node], indptr[node + 1]):
        links[part_id[indices[entry]]] += 1
    part, best = part_id[node], -1
    for other in range(load.size):
        if other == part or load[other] + weight[node] > limit:
            continue
        if held[node] > 0 and held_load[other] + held[node] > held_limit:
            continue
        if best < 0 or links[other] > links[best] or (links[other] == links[best] and load[other] < load[best]):
            best = other
    return best, links[part] - links[best]
