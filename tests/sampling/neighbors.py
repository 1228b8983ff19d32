"""Helpers that test_neighbors.py shares with other test modules."""

from collections.abc import Sequence

import numpy as np

from fullgnn.sampling.hop import Hop

SEED = 2**40 + 5


def random_graph(num_nodes: int, mean_degree: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Skewed in-degrees, with isolated nodes, self-loops and one node that reads from all."""
    rng = np.random.default_rng(seed)
    degree = np.minimum(rng.pareto(1.5, num_nodes) * mean_degree / 2, num_nodes).astype(int)
    degree[num_nodes // 2], degree[:3] = num_nodes, 0
    rows = [np.sort(rng.choice(num_nodes, size, replace=False)) for size in degree]
    return np.concatenate([[0], np.cumsum(degree)]).astype(np.int64), np.concatenate(rows).astype(np.int32)


def random_weights(indptr: np.ndarray) -> np.ndarray:
    """With zeros, also rows of zeros."""
    rng = np.random.default_rng(3)
    weight = rng.exponential(size=indptr[-1]) * (rng.random(indptr[-1]) < 0.7)
    for row in range(10, len(indptr) - 1, 17):
        weight[indptr[row] : indptr[row + 1]] = 0
    return weight


def chosen(num_nodes: int, count: int, seed: int = 1) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).choice(num_nodes, count, replace=False))


def equal(hops: Sequence[Hop[np.ndarray]], other: Sequence[Hop[np.ndarray]]) -> bool:
    names = "sources", "target_index", "indptr", "indices", "places", "factors"
    pairs = [(getattr(a, name), getattr(b, name)) for a, b in zip(hops, other, strict=True) for name in names]
    return all(a is b is None or (a.dtype == b.dtype and np.array_equal(a, b)) for a, b in pairs)
