"""Compute A @ H0 once: the features are constant, so their product with A is constant too."""

import logging
from dataclasses import replace

import torch
from torch import Tensor

from fullgnn.distributed import World, all_gather_objects
from fullgnn.graph import Propagation
from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.kernels.support.aligned import aligned_stride, to_aligned
from fullgnn.schemes.base import ShardedGraph
from fullgnn.schemes.block import PropagatedInput
from fullgnn.storage.cache import Cache

log = logging.getLogger(__name__)

COLUMNS_AT_ONCE = 128
"""Columns multiplied at a time. This keeps the buffers as small as a hidden layer's, for any number of features."""

OFFLOAD_SHARE = 0.5
"""``optimizations.offload=auto`` keeps A @ H0 on the host if it takes more than this fraction of a GPU's free
memory."""


def offloads(choice: str, graph: ShardedGraph, world: World) -> bool:
    """Decide from ``optimizations.offload`` whether A @ H0 stays on the host. Every rank calls this and gets the
    same answer."""
    if choice != "auto" or world.device.type != "cuda":
        return choice == "always"
    assert isinstance(graph.features, Tensor)
    num_rows, width = graph.features.shape
    row_bytes = aligned_stride(world.device, width, graph.features.dtype) * graph.features.itemsize
    needed, free = num_rows * row_bytes, torch.cuda.mem_get_info(world.device)[0]
    too_large = [pair for pair in all_gather_objects((needed, free)) if pair[0] > OFFLOAD_SHARE * pair[1]]
    if too_large:
        log.info("A @ H0 stays in host memory: one rank needs %d bytes for it, and its GPU has %d free", *too_large[0])
    return bool(too_large)


@torch.no_grad()
def aggregate_features(
    graph: ShardedGraph, propagation: Propagation, device: torch.device, offload: bool
) -> ShardedGraph:
    """Replace ``features`` by A @ features; the product is distributed and overlapped like any other.

    A column of A @ X needs only that column of X, so the product overwrites the features a few columns at a time and
    needs no second matrix of their size. Training does not need the features any more.

    Args:
        propagation: A.
        device: the device that holds A.
        offload: keep the product on the host; only the few columns being multiplied are on the device.
    """
    x, product = _placed(graph, device, offload), graph.block.product(propagation)
    for first in range(0, x.shape[1], COLUMNS_AT_ONCE):
        columns = x[:, first : first + COLUMNS_AT_ONCE]
        columns.copy_(product.multiply(to_aligned(columns, device)))
    if graph.block.buffers is not None:
        graph.block.buffers.release()
    return _with_product(graph, propagation, x, device, offload)


def cached_aggregation(
    graph: ShardedGraph, propagation: Propagation, world: World, offload: bool, cache: Cache, key: str
) -> ShardedGraph:
    """Load A @ H0 if every rank finds its rows in the ``cache``; else call ``aggregate_features`` and store the rows.

    Every rank calls it. A file holds the rows of one rank and is keyed by their nodes: replicas with the same rows
    share the file, which the lowest rank writes. If one rank has no file, all ranks multiply, since a product needs
    every rank.

    Args:
        propagation: A.
        key: key of the whole product, computed on rank 0.
    """
    x = _placed(graph, world.device, offload)
    graph = replace(graph, features=x)
    key = cache.key(product=key, node_id=graph.block.source_id.cpu().numpy(), device=world.device.type)
    stored = cache.load("aggregation", key)
    missing = all_gather_objects(key if stored is None else None)
    if not any(missing):
        assert stored is not None
        log.info("A @ H0 is loaded from %s", cache.folder)
        x.copy_(torch.from_numpy(stored["product"]))  # the strides of x, as if computed: later sums agree to the bit
        return _with_product(graph, propagation, x, world.device, offload)
    graph = aggregate_features(graph, propagation, world.device, offload)
    if stored is None and missing.index(key) == world.rank:
        cache.store("aggregation", key, {"product": x.cpu().numpy()})
    return graph


def _placed(graph: ShardedGraph, device: torch.device, offload: bool) -> Tensor:
    """Move the features to where their product will be stored; on a GPU, rows then begin at cache lines."""
    assert isinstance(graph.features, Tensor)
    return graph.features.to("cpu") if offload else to_aligned(graph.features, device)


def _with_product(
    graph: ShardedGraph, propagation: Propagation, product: Tensor, device: torch.device, offload: bool
) -> ShardedGraph:
    rows = HostRows(product, device) if offload else product
    return replace(graph, features=PropagatedInput(graph.block, propagation, rows))
