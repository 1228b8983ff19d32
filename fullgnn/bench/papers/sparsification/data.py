"""Graphs on which an accuracy can fall: features of real words, projected to dense ones, and a look-alike that is not
too easy.

The projection is a truncated SVD of the (num_nodes, words) matrix, without subtracting the mean: its columns are
X V = U S, by falling singular value, and one number scales all of them to a mean square of 1. They are not whitened, so
that the first columns keep the sizes that they have in the words.
"""

import functools
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from fullgnn.bench.papers.graphs import Case, given_case
from fullgnn.bench.papers.sparsification.accuracy_config import Config
from fullgnn.config.compose import compose, load_config
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.graph.datasets import load_cached
from fullgnn.graph.sparse_features import NodeFeatures, features_to_arrays
from fullgnn.graph.splits import random_split
from fullgnn.storage.cache import Cache

KIND = "projected"
"""Folder, in the cache, of projected features."""

POWER_ITERATIONS = 4
"""Products with X and its transpose that sharpen the random subspace of the SVD."""


def cases(cfg: Config) -> list[Case]:
    """Find or make the graphs that ``cfg`` chooses; targets of one command share them."""
    return [case(cfg, name) for name in cfg.chosen]


def case(cfg: Config, name: str) -> Case:
    """Find or make one graph."""
    known, data = cfg.graphs[name], cfg.data[name]
    overrides = list(data.overrides)
    if cfg.scale is not None and any(one.startswith("dataset.scale=") for one in overrides):
        overrides.append(f"dataset.scale={cfg.scale!r}")
    node = compose(*overrides).dataset
    graph = _graph(tuple(overrides), data.columns, data.symmetrize, cfg.data_seed, cfg.cache_dir)
    return given_case(name, known.title, graph, node, known.hidden)


@functools.lru_cache(maxsize=4)
def _graph(
    overrides: tuple[str, ...], columns: int | None, symmetrize: bool, seed: int, cache_dir: str | None
) -> Graph:
    graph = load_cached(load_config(compose(*overrides)).dataset, Cache(cache_dir))
    if symmetrize:
        graph = graph.symmetrized()
    return graph if columns is None else replace(graph, features=_kept(graph.features, columns, seed, Cache(cache_dir)))


def _kept(features: NodeFeatures, columns: int, seed: int, cache: Cache) -> np.ndarray:
    """``projected``, or what the cache has of it."""
    key = cache.key(**features_to_arrays(features), columns=columns, seed=seed, iterations=POWER_ITERATIONS)
    found = cache.load(KIND, key, lambda arrays: arrays["features"])
    if found is None:
        found = projected(features, columns, seed)
        cache.store(KIND, key, {"features": found})
    return found


def projected(features: NodeFeatures, columns: int, seed: int) -> np.ndarray:
    """(num_nodes, columns) float32: a projection of (num_nodes, F) features, see the head of this file.

    Raises:
        ConfigError: there are fewer features, or fewer nodes, than columns.
    """
    from sklearn.utils.extmath import randomized_svd

    if columns > min(features.shape):
        raise ConfigError(f"columns={columns} is more than {min(features.shape)}, what {features.shape} features hold")
    words = csr_array(features)  # most words are in no other node
    left, values, _ = randomized_svd(words, columns, n_iter=POWER_ITERATIONS, random_state=seed)
    found = left * values
    return (found / np.sqrt(np.mean(np.square(found, dtype=np.float64)))).astype(np.float32)


def with_split(graph: Graph, cfg: Config, seed: int) -> Graph:
    """The graph with a random split of its own for each ``seed``."""
    return replace(graph, **random_split(graph.labels, cfg.train_fraction, cfg.val_fraction, seed))
