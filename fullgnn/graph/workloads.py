"""Graphs that the benchmark measures on: random, from a seed, equal to the bit on every machine.

They have communities inside communities and skewed degrees, and are about as dense as the graph that each is named
after would be if its mean degree were kept on a tenth of the nodes. They are symmetric, without self-loops and
duplicates, and their node ids are shuffled. Their block model has the expected degrees of
``generate.hierarchical_sbm``, but its levels are drawn independently, and an edge of two levels is stored once.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.graph.csr import distinct
from fullgnn.graph.generate import (
    HostArrays,
    csr_from_keys,
    cumulative_degrees,
    in_both_directions,
    node_at,
    split_keys,
)
from fullgnn.graph.graph import Graph
from fullgnn.storage.archive import read_arrays
from fullgnn.storage.arrays import DamagedArray
from fullgnn.storage.folder import replacing

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 60
_CHUNK = 1000  # edges drawn beyond the missing ones, since some are duplicates


@dataclass(frozen=True)
class Workload:
    """The sizes of a well-known graph, at which graphs are made that resemble it."""

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
    arrays: Any = _kept(path) if path else None
    if arrays is None:
        arrays = _adjacency(workload, seed)
        if path:
            with replacing(path) as temporary:
                np.savez(temporary, **arrays)
    indptr, indices, community = arrays.values()

    rng = np.random.default_rng(seed + 1)
    n, width, num_classes = workload.num_nodes, workload.num_features, workload.num_classes
    labels = community % num_classes
    centre = rng.standard_normal((num_classes, width), dtype=np.float32)
    features = rng.standard_normal((n, width), dtype=np.float32) + 0.5 * centre[labels]
    train_mask = rng.random(n) < 0.6
    no_node = np.zeros(n, dtype=bool)
    return Graph(indptr, indices, features, labels, train_mask, no_node, no_node, num_classes=num_classes, name=name)


def _kept(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of an earlier call; None if there are none, or if they are damaged."""
    try:
        arrays = read_arrays(path)
        return arrays if list(arrays) == ["indptr", "indices", "community"] else None
    except FileNotFoundError:
        return None
    except DamagedArray as error:
        log.warning("%s cannot be read (%s): it is drawn again", path, error)
        return None


def _adjacency(workload: Workload, seed: int) -> dict[str, np.ndarray]:
    """(n + 1,) and (num_edges,) int32 CSR with sorted rows, and (n,) the first-level community of each node."""
    n = workload.num_nodes
    rng = np.random.default_rng(seed)
    cumulative = cumulative_degrees(HostArrays(rng), n)
    levels = [(np.zeros(n, np.int64), 1 - sum(share for _, share in workload.levels))]
    levels += [(_communities(rng, n, count), share) for count, share in workload.levels]
    keys = [_edges(rng, cumulative, group, int(workload.num_edges // 2 * share)) for group, share in levels]
    low, high = split_keys(distinct(np.concatenate(keys)), n)

    new_id = rng.permutation(n)
    indptr, indices = csr_from_keys(in_both_directions(new_id[low] * n + new_id[high], n), n)
    community = np.empty(n, np.int64)
    community[new_id] = levels[1][0]
    return {"indptr": indptr.astype(np.int32), "indices": indices, "community": community}


def _communities(rng: np.random.Generator, n: int, count: int) -> np.ndarray:
    """(n,) consecutive communities of uneven size."""
    size = rng.pareto(3.0, count) + 1.0
    return np.searchsorted(np.cumsum(size) / size.sum(), (np.arange(n) + 0.5) / n)


def _edges(rng: np.random.Generator, cumulative: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    """``count`` distinct pairs inside the groups, each coded as ``low * n + high``, drawn by expected degree."""
    n = group.size
    start = np.searchsorted(group, np.arange(group[-1] + 2))
    group_low, group_high = cumulative[start[:-1]], cumulative[start[1:]]
    keys = np.empty(0, np.int64)
    for _ in range(_MAX_ATTEMPTS):
        missing = count - keys.size
        if missing <= 0:
            break
        drawn = int(missing * 1.15) + _CHUNK
        first = node_at(np, cumulative, rng.random(drawn) * cumulative[-1])
        low, high = group_low[group[first]], group_high[group[first]]
        second = node_at(np, cumulative, low + rng.random(drawn) * (high - low))
        codes = np.minimum(first, second) * n + np.maximum(first, second)
        keys = distinct(np.concatenate([keys, codes[first != second]]))
        if keys.size > count:
            keys = rng.permutation(keys)[:count]
    return keys
