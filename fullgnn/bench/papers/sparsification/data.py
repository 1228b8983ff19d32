"""Graphs on which an accuracy can fall: features of real words, projected to dense ones, and a look-alike that is not
too easy.

The projection is a truncated SVD of the (num_nodes, words) matrix, without subtracting the mean: its columns are
X V = U S, by falling singular value, and one number scales all of them to a mean square of 1. They are not whitened, so
that the first columns keep the sizes that they have in the words.
"""

import functools
from dataclasses import dataclass, field, replace
from typing import Any, Optional

import numpy as np
from scipy.sparse import csr_array

from fullgnn.bench.papers.config import Keys
from fullgnn.bench.papers.graphs import GraphCase, given_case, load
from fullgnn.config.compose import compose
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.graph.sparse_features import NodeFeatures, features_to_arrays
from fullgnn.graph.splits import random_split
from fullgnn.storage.cache import Cache

KIND = "projected"
"""Folder, in the cache, of projected features."""

POWER_ITERATIONS = 4
"""Products with X and its transpose that sharpen the random subspace of the SVD."""


@dataclass
class GraphSource:
    """Where the graph of a dataset comes from, and what its features become."""

    overrides: list[str]
    """Overrides of a run that choose the graph."""
    columns: Optional[int]
    """Its features are projected to so many columns; null: they stay as they are."""
    symmetrize: bool = False


@dataclass
class AccuracyModel:
    """A model, and the way in which it is trained."""

    title: str
    keys: list[str]
    """Overrides that choose it."""
    sampled: bool = False
    """Whether it is trained by batches; false: full-batch."""


@dataclass
class CodecRows:
    """A codec at several ratios."""

    title: str
    keys: list[str]
    """Overrides at every ratio."""
    at: dict[int, list[str]] = field(default_factory=dict)
    """Further overrides, by the ratio that they come nearest. ``{k}`` stands for the k of topk that comes nearest with
    these features, ``{dimensions}`` for their columns over the ratio and ``{bytes}`` for their bytes over the ratio."""
    datasets: Optional[list[str]] = None
    """Those to which it is applied; null: all."""


@dataclass
class AccuracyKeys(Keys):
    """The keys of ``conf/reproduce_sparsification_accuracy.yaml``, which explains them."""

    data: dict[str, GraphSource]
    data_seed: int
    val_fraction: float
    models: dict[str, AccuracyModel]
    sampled_training: list[str]
    max_epochs: int
    patience: int
    sampled_max_epochs: int
    sampled_patience: int
    codecs: dict[str, CodecRows]
    chosen_codecs: list[str]
    trained_on: list[str]
    ceiling: float
    best_at: list[int]
    aims: list[dict[str, Any]]


def check(cfg: AccuracyKeys) -> None:
    """Refuse parts of the nodes that leave no test nodes.

    Raises:
        ConfigError: one line that names the keys.
    """
    if not (cfg.train_fraction > 0 and cfg.val_fraction > 0 and cfg.train_fraction + cfg.val_fraction < 1):
        raise ConfigError(
            f"train_fraction={cfg.train_fraction:g} and val_fraction={cfg.val_fraction:g} are out of range: both must"
            " be above 0, and their sum below 1, since the other nodes test"
        )


def case(cfg: AccuracyKeys, name: str) -> GraphCase:
    """Find or make one graph; targets of one command share it."""
    known, data = cfg.graphs[name], cfg.data[name]
    overrides = list(data.overrides)
    if cfg.scale is not None and any(key.startswith("dataset.scale=") for key in overrides):
        overrides.append(f"dataset.scale={cfg.scale!r}")
    graph = _graph(tuple(overrides), data.columns, data.symmetrize, cfg.data_seed, cfg.cache_dir)
    return given_case(name, known.title, graph, compose(*overrides).dataset, known.hidden)


@functools.lru_cache(maxsize=4)
def _graph(overrides: tuple[str, ...], columns: int | None, symmetrize: bool, seed: int, folder: str | None) -> Graph:
    graph, cache = load(*overrides, cache_dir=folder), Cache(folder)
    if symmetrize:
        graph = graph.symmetrized()
    if columns is None:
        return graph
    key = cache.key(**features_to_arrays(graph.features), columns=columns, seed=seed, iterations=POWER_ITERATIONS)
    features = cache.load(KIND, key, lambda arrays: arrays["features"])
    if features is None:
        features = projected(graph.features, columns, seed)
        cache.store(KIND, key, {"features": features})
    return replace(graph, features=features)


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
    projection = left * values
    return (projection / np.sqrt(np.mean(np.square(projection, dtype=np.float64)))).astype(np.float32)


def with_split(graph: Graph, cfg: AccuracyKeys, seed: int) -> Graph:
    """The graph with a random split of its own for each ``seed``."""
    return replace(graph, **random_split(graph.labels, cfg.train_fraction, cfg.val_fraction, seed))
