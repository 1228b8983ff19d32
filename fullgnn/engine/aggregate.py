"""A @ H0 once and for all: the features are constant, so their product with A is as well."""

import logging
from dataclasses import replace

import torch

from fullgnn.cache import Cache
from fullgnn.dist import World, all_gather_objects
from fullgnn.schemes.base import Aggregated, ShardedGraph

log = logging.getLogger(__name__)

COLUMNS_AT_ONCE = 128
"""Bounds the buffers to what a hidden layer needs, however many features there are."""


@torch.no_grad()
def aggregate_features(graph: ShardedGraph) -> ShardedGraph:
    """The graph with ``Aggregated(A @ features)`` for ``features``: distributed and overlapped like any product.

    A column of A @ X needs that column of X alone, so the product takes the place of the features, a few columns at a
    time: it needs no second matrix of their size. Training needs the features no more.
    """
    x = graph.features
    assert isinstance(x, torch.Tensor)
    for first in range(0, x.shape[1], COLUMNS_AT_ONCE):
        columns = x[:, first : first + COLUMNS_AT_ONCE]
        columns.copy_(graph.adj.multiply(columns))
    graph.adj.release()
    return replace(graph, features=Aggregated(x))


def cached_aggregation(graph: ShardedGraph, world: World, cache: Cache, key: str) -> ShardedGraph:
    """``aggregate_features``, unless every rank finds its rows of the product in the ``cache``. Called on every rank.

    A file holds the rows of one rank, named by their nodes: replicas with the same rows share it, the lowest rank
    writes it. If one rank has no file, all of them multiply: a product takes everyone.

    Args:
        key: of the product on all ranks, from rank 0.
    """
    x = graph.features
    assert isinstance(x, torch.Tensor)
    key = cache.key(product=key, node_id=graph.adj.node_id.cpu().numpy(), device=x.device.type)
    stored = cache.load("aggregation", key)
    missing = all_gather_objects(key if stored is None else None)
    if not any(missing):
        assert stored is not None
        log.info("A @ H0 is loaded from %s", cache.folder)
        x.copy_(torch.from_numpy(stored["product"]))  # to where a computed product lies, for the same bits ever after
        return replace(graph, features=Aggregated(x))
    graph = aggregate_features(graph)
    if stored is None and missing.index(key) == world.rank:
        cache.store("aggregation", key, {"product": x.cpu().numpy()})
    return graph
