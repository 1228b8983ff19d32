"""A @ H0 once and for all: the features are constant, so their product with A is as well."""

import logging
from dataclasses import replace

import torch
from torch import Tensor

from fullgnn.distributed import World, all_gather_objects
from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.kernels.support.lines import line_stride, to_lines
from fullgnn.schemes.base import Aggregated, ShardedGraph
from fullgnn.storage.cache import Cache

log = logging.getLogger(__name__)

COLUMNS_AT_ONCE = 128
"""Bounds the buffers to what a hidden layer needs, however many features there are."""

OFFLOAD_SHARE = 0.5
"""``optimizations.offload=auto`` keeps A @ H0 on the host where A @ H0 takes more than this share of a GPU's free
memory."""


def offloads(choice: str, graph: ShardedGraph, world: World) -> bool:
    """Whether A @ H0 stays on the host, by ``optimizations.offload``. Called on every rank, the same on each."""
    if choice != "auto" or world.device.type != "cuda":
        return choice == "always"
    assert isinstance(graph.features, Tensor)
    num_rows, width = graph.features.shape
    row_bytes = line_stride(world.device, width, graph.features.dtype) * graph.features.itemsize
    needed, free = num_rows * row_bytes, torch.cuda.mem_get_info(world.device)[0]
    too_large = [pair for pair in all_gather_objects((needed, free)) if pair[0] > OFFLOAD_SHARE * pair[1]]
    if too_large:
        log.info("A @ H0 stays in host memory: a rank's %d bytes are much of the %d free on its GPU", *too_large[0])
    return bool(too_large)


@torch.no_grad()
def aggregate_features(graph: ShardedGraph, device: torch.device, offload: bool) -> ShardedGraph:
    """The graph with ``Aggregated(A @ features)`` for ``features``: distributed and overlapped like any product.

    A column of A @ X needs that column of X alone, so the product takes the place of the features, a few columns at a
    time: it needs no second matrix of their size. Training needs the features no more.

    Args:
        device: where A is.
        offload: the product stays on the host, and only those few columns are ever on the device.
    """
    x = _placed(graph, device, offload)
    for first in range(0, x.shape[1], COLUMNS_AT_ONCE):
        columns = x[:, first : first + COLUMNS_AT_ONCE]
        columns.copy_(graph.adj.multiply(to_lines(columns, device)))
    graph.adj.release()
    return _with_product(graph, x, device, offload)


def cached_aggregation(graph: ShardedGraph, world: World, offload: bool, cache: Cache, key: str) -> ShardedGraph:
    """``aggregate_features``, unless every rank finds its rows of the product in the ``cache``. Called on every rank.

    A file holds the rows of one rank, named by their nodes: replicas with the same rows share it, the lowest rank
    writes it. If one rank has no file, all of them multiply: a product takes everyone.

    Args:
        key: of the product on all ranks, from rank 0.
    """
    x = _placed(graph, world.device, offload)
    graph = replace(graph, features=x)
    key = cache.key(product=key, node_id=graph.adj.node_id.cpu().numpy(), device=world.device.type)
    stored = cache.load("aggregation", key)
    missing = all_gather_objects(key if stored is None else None)
    if not any(missing):
        assert stored is not None
        log.info("A @ H0 is loaded from %s", cache.folder)
        x.copy_(torch.from_numpy(stored["product"]))  # to where a computed product lies, for the same bits ever after
        return _with_product(graph, x, world.device, offload)
    graph = aggregate_features(graph, world.device, offload)
    if stored is None and missing.index(key) == world.rank:
        cache.store("aggregation", key, {"product": x.cpu().numpy()})
    return graph


def _placed(graph: ShardedGraph, device: torch.device, offload: bool) -> Tensor:
    """The features where their product will be; in lines on a GPU, since every epoch multiplies it."""
    assert isinstance(graph.features, Tensor)
    return graph.features.to("cpu") if offload else to_lines(graph.features, device)


def _with_product(graph: ShardedGraph, product: Tensor, device: torch.device, offload: bool) -> ShardedGraph:
    return replace(graph, features=Aggregated(HostRows(product, device) if offload else product))
