"""A @ H0 once and for all: the features are constant, so their product with A is as well."""

from dataclasses import replace

import torch

from fullgnn.schemes.base import Aggregated, ShardedGraph

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
    return replace(graph, features=Aggregated(x))
