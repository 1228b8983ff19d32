"""Neighbour sampling written down plainly: one target after the other, sets and dictionaries, one word at a time."""

from functools import partial

import numpy as np

from fullgnn.kernels.dropout.philox import philox_4x32
from fullgnn.sampling.neighbors import ALL, SAMPLING
from fullgnn.tasks.draws import stream_key

Edges = list[tuple[int, int]]  # (place in the graph's ``indices``, its source), target after target


def sample(
    indptr: np.ndarray,
    indices: np.ndarray,
    fanouts: list[int],
    targets: np.ndarray,
    seed: int,
    epoch: int,
    replace: bool = False,
    weight: np.ndarray | None = None,
) -> list[dict[int, list[int]]]:
    """For each hop, the places of the edges of each target, in the order in which they are drawn."""
    key, hops, frontier = stream_key(seed, SAMPLING), [], sorted(targets.tolist())
    for hop, fanout in enumerate(fanouts):
        edges: dict[int, list[int]] = {}
        for v in frontier:
            row = range(int(indptr[v]), int(indptr[v + 1]))

            word = partial(random_word, key, epoch, hop, v)

            if fanout == ALL or (len(row) <= fanout and not replace):
                edges[v] = list(row)
            elif weight is None:
                edges[v] = [row[k] for k in uniform(len(row), fanout, replace, word)] if row else []
            else:
                edges[v] = [row[k] for k in weighted(weight[row.start : row.stop], fanout, replace, word)]
        hops.append(edges)
        neighbors = {int(indices[place]) for places in edges.values() for place in places}
        frontier = sorted(neighbors.union(frontier))
    return hops


def random_word(key: tuple[int, int], epoch: int, hop: int, node: int, number: int, turn: int = 0) -> int:
    counter = np.array([node, number // 4 + (turn << 24), hop, epoch])
    return int(philox_4x32(counter, np.array(key))[number % 4])


def uniform(count, k, replace, word):  # type: ignore[no-untyped-def]
    """k of ``count`` numbers."""
    chosen: list[int] = []
    for d in range(k):
        bound, turn = count if replace else count - k + d + 1, 0
        while word(d, turn) * bound % 2**32 < 2**32 % bound:
            turn += 1
        number = word(d, turn) * bound // 2**32
        chosen.append(bound - 1 if not replace and number in chosen else number)
    return chosen


def weighted(weights, k, replace, word):  # type: ignore[no-untyped-def]
    """k numbers of rows of ``weights``, by weight."""

    def unit(number: int) -> float:
        return float((word(2 * number) << 21 ^ word(2 * number + 1) >> 11) + 0.5) / 2**53

    if replace:
        total = np.cumsum(weights)
        draws = [unit(d) * total[-1] for d in range(k)] if len(weights) and total[-1] > 0 else []
        return [int(np.searchsorted(total, wanted, side="right")) for wanted in draws]
    positive = np.flatnonzero(weights)
    keys = [-np.log(unit(place)) / weights[place] for place in positive]
    return sorted(positive[np.argsort(keys)[:k]].tolist())
