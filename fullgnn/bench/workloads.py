"""Graphs to measure on: random, from a seed, equal to the bit on every machine.

They have communities inside communities and skewed degrees (a degree-corrected stochastic block model), and are about
as dense as the graph that each is named after would be if its mean degree were kept on a tenth of the nodes. They are
symmetric, without self-loops and duplicates, and their node ids are shuffled.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fullgnn.graph import Graph
from fullgnn.storage.atomic import replacing

_MAX_ATTEMPTS = 60
_CHUNK = 1000  # edges drawn beyond the missing ones, since some are duplicates
_DEGREE_EXPONENT = 2.6  # of the power law of the expected degrees
_MAX_DEGREE_RATIO = 40.0  # largest expected degree over the smallest


@dataclass(frozen=True)
class Workload:
    num_nodes: int
    num_edges: int  # directed, at most: duplicates between the levels are merged
    num_features: int
    num_classes: int
    hidden: int  # width of the layer between, as usual for the graph it is named after
    levels: tuple[tuple[int, float], ...]  # (communities, share of the edges inside them); the rest joins any two nodes


WORKLOADS = {
    "reddit-mini": Workload(23_296, 11_500_000, 602, 41, 128, ((41, 0.70),)),
    "products-mini": Workload(244_902, 12_600_000, 100, 47, 64, ((47, 0.35), (1200, 0.40))),
    "proteins-mini": Workload(13_253, 7_900_000, 602, 8, 128, ((8, 0.70),)),
    "tiny": Workload(2_000, 60_000, 32, 7, 16, ((7, 0.75),)),
}


def load_workload(name: str, cache_dir: str | None, seed: int = 0) -> Graph:
    """The workload ``name``; its adjacency is kept in ``cache_dir``, the rest is drawn anew, which is quick."""
    workload = WORKLOADS[name]
    path = Path(cache_dir) / f"{name}-{seed}.npz" if cache_dir else None
    if path and path.exists():
        with np.load(path) as arrays:
            indptr, indices, community = arrays["indptr"], arrays["indices"], arrays["community"]
    else:
        indptr, indices, community = _adjacency(workload, seed)
        if path:
            with replacing(path) as temporary:
                np.savez(temporary, indptr=indptr, indices=indices, community=community)

    rng = np.random.default_rng(seed + 1)
    n, width, num_classes = workload.num_nodes, workload.num_features, workload.num_classes
    labels = community % num_classes
    centre = rng.standard_normal((num_classes, width), dtype=np.float32)
    features = rng.standard_normal((n, width), dtype=np.float32) + 0.5 * centre[labels]
    train_mask = rng.random(n) < 0.6
    no_node = np.zeros(n, dtype=bool)
    return Graph(indptr, indices, features, labels, train_mask, no_node, no_node, num_classes=num_classes, name=name)


def _adjacency(workload: Workload, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n + 1,) and (num_edges,) int32 CSR with sorted rows, and (n,) the first-level community of each node."""
    n = workload.num_nodes
    rng = np.random.default_rng(seed)
    weight = np.minimum((1 - rng.random(n)) ** (-1 / (_DEGREE_EXPONENT - 1)), _MAX_DEGREE_RATIO)
    total_weight = np.concatenate([[0.0], np.cumsum(weight)])  # before each node
    levels = [(np.zeros(n, np.int64), 1 - sum(share for _, share in workload.levels))]
    levels += [(_communities(rng, n, count), share) for count, share in workload.levels]
    codes = [_edges(rng, total_weight, group, int(workload.num_edges // 2 * share)) for group, share in levels]
    low, high = np.divmod(np.unique(np.concatenate(codes)), n)

    node_id = rng.permutation(n)
    low, high = node_id[low], node_id[high]
    entries = np.sort(np.concatenate([low * n + high, high * n + low]))
    indptr = np.searchsorted(entries, np.arange(n + 1) * n)
    community = np.empty(n, np.int64)
    community[node_id] = levels[1][0]
    return indptr.astype(np.int32), (entries % n).astype(np.int32), community


def _communities(rng: np.random.Generator, n: int, count: int) -> np.ndarray:
    """(n,) consecutive communities of uneven size."""
    size = rng.pareto(3.0, count) + 1.0
    return np.searchsorted(np.cumsum(size) / size.sum(), (np.arange(n) + 0.5) / n)


def _edges(rng: np.random.Generator, total_weight: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    """``count`` distinct pairs inside the groups, each coded as ``low * n + high``, drawn by the nodes' weights."""
    n = group.size
    start = np.searchsorted(group, np.arange(group[-1] + 2))
    group_low, group_high = total_weight[start[:-1]], total_weight[start[1:]]

    def node_at(position: np.ndarray) -> np.ndarray:
        return np.minimum(np.searchsorted(total_weight, position, side="right") - 1, n - 1)

    pairs = np.empty(0, np.int64)
    for _ in range(_MAX_ATTEMPTS):
        missing = count - pairs.size
        if missing <= 0:
            break
        drawn = int(missing * 1.15) + _CHUNK
        one = node_at(rng.random(drawn) * total_weight[-1])
        low, high = group_low[group[one]], group_high[group[one]]
        other = node_at(low + rng.random(drawn) * (high - low))
        code = np.minimum(one, other) * n + np.maximum(one, other)
        pairs = np.unique(np.concatenate([pairs, code[one != other]]))
        if pairs.size > count:
            pairs = rng.permutation(pairs)[:count]
    return pairs
