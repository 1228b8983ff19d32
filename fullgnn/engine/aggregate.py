"""Compute A @ H0 once, or several powers A^k @ H0: the features are constant, so their products with A are constant."""

import logging
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fullgnn.distributed import World, all_gather_objects
from fullgnn.graph import Propagation
from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.support.aligned import aligned_stride, like_rows, to_aligned
from fullgnn.schemes.base import ShardedGraph
from fullgnn.schemes.inputs import PropagatedInput
from fullgnn.storage.cache import Cache

log = logging.getLogger(__name__)

COLUMNS_AT_ONCE = 128
"""Columns multiplied at a time. This keeps the buffers as small as a hidden layer's, for any number of features."""

OFFLOAD_SHARE = 0.5
"""``optimizations.offload=auto`` keeps A @ H0 on the host if it takes more than this fraction of a GPU's free
memory."""


@dataclass(frozen=True)
class CachedPowers:
    """Which products A^k @ H0 are kept instead of H0."""

    propagation: Propagation  # A
    powers: tuple[int, ...] = (1,)  # k


def offloads(graph: ShardedGraph, world: World, num_kept: int = 1) -> bool:
    """Decide, for ``optimizations.offload=auto`` on GPUs, whether the ``num_kept`` products A^k @ H0 stay on the host.
    Every rank calls this and gets the same answer."""
    if isinstance(graph.features, SparseRows):
        return False  # nothing of A @ H0 is kept
    assert isinstance(graph.features, Tensor)
    num_rows, width = graph.features.shape
    row_bytes = aligned_stride(world.device, width, graph.features.dtype) * graph.features.itemsize
    needed, free = num_kept * num_rows * row_bytes, torch.cuda.mem_get_info(world.device)[0]
    too_large = [pair for pair in all_gather_objects((needed, free)) if pair[0] > OFFLOAD_SHARE * pair[1]]
    if too_large:
        log.info("A @ H0 stays in host memory: one rank needs %d bytes for it, and its GPU has %d free", *too_large[0])
    return bool(too_large)


def aggregate_features(graph: ShardedGraph, kept: CachedPowers, device: torch.device, offload: bool) -> ShardedGraph:
    """Replace ``features`` by the products that are ``kept``; they are distributed and overlapped like any other.

    Args:
        device: the device that holds A.
        offload: keep the products on the host; only the few columns being multiplied are on the device.
    """
    x = _placed_features(graph, device, offload)
    return _with_products(graph, kept, _products(graph, kept, x, device), device, offload)


def cached_aggregation(
    graph: ShardedGraph, kept: CachedPowers, world: World, offload: bool, cache: Cache, key: str
) -> ShardedGraph:
    """Load the products that are ``kept`` if every rank finds its rows in the ``cache``; else compute and store them.

    Every rank calls it. A file holds the rows of one rank and is keyed by their nodes: replicas with the same rows
    share the file, which the lowest rank writes. If one rank has no file, all ranks multiply, since a product needs
    every rank.

    Args:
        key: key of the features, of the adjacency and of how they are multiplied, computed on rank 0.
    """
    x = _placed_features(graph, world.device, offload)
    node_id = graph.block.source_id.cpu().numpy()
    key = cache.key(product=key, kept=asdict(kept), node_id=node_id, device=world.device.type)

    def checked(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        for power in filter(None, kept.powers):
            rows = torch.from_numpy(arrays[f"power_{power}"])
            if (rows.shape, rows.dtype) != (x.shape, x.dtype):
                raise ValueError(f"it is {rows.dtype} {tuple(rows.shape)}, and {x.dtype} {tuple(x.shape)} here")
        return arrays

    stored = cache.load("aggregation", key, checked)
    missing = all_gather_objects(key if stored is None else None)
    if any(missing):
        by_power = _products(graph, kept, x, world.device)
        if stored is None and missing.index(key) == world.rank:
            arrays = {f"power_{power}": rows.cpu().numpy() for power, rows in by_power.items() if power}
            cache.store("aggregation", key, arrays)
    else:
        assert stored is not None
        log.info("A @ H0 is loaded from %s", cache.folder)
        # The strides are those of x, as if computed: later sums agree to the bit.
        loaded = {power: torch.from_numpy(stored[f"power_{power}"]) for power in filter(None, kept.powers)}
        by_power = {power: _placed(loaded[power], world.device, offload) if power else x for power in kept.powers}
    return _with_products(graph, kept, by_power, world.device, offload)


@torch.no_grad()
def _products(graph: ShardedGraph, kept: CachedPowers, x: Tensor, device: torch.device) -> dict[int, Tensor]:
    """The products A^k @ X that are ``kept``, by k.

    A column of A @ X needs only that column of X, so one product overwrites X, a few columns at a time: training does
    not need the features any more. Features that a codec keeps reach other ranks as codes.
    """
    by_power, product = _matrices(x, kept), graph.block.product(kept.propagation)
    arrived = None if graph.coded is None else graph.coded.arrive(product)
    for first in range(0, x.shape[1], COLUMNS_AT_ONCE):
        chosen = slice(first, min(first + COLUMNS_AT_ONCE, x.shape[1]))
        columns = arrived.multiply(chosen) if arrived else product.multiply(to_aligned(x[:, chosen], device))
        for power in range(1, max(kept.powers) + 1):
            columns = columns if power == 1 else product.multiply(columns)
            if power in by_power:
                by_power[power][:, chosen] = columns
    if graph.block.buffers is not None:
        graph.block.buffers.release()
    return by_power


def _matrices(x: Tensor, kept: CachedPowers) -> dict[int, Tensor]:
    """A matrix for each product that is ``kept``, like ``x``, which is one of them: the power 0, or else the last."""
    own = 0 if 0 in kept.powers else max(kept.powers)
    return {power: x if power == own else like_rows(x) for power in kept.powers}


def _placed_features(graph: ShardedGraph, device: torch.device, offload: bool) -> Tensor:
    assert isinstance(graph.features, Tensor)
    return _placed(graph.features, device, offload)


def _placed(rows: Tensor, device: torch.device, offload: bool) -> Tensor:
    """Move ``rows`` to where products are kept; on a GPU, they then begin at cache lines. They may stay in place."""
    return rows.to("cpu") if offload else to_aligned(rows, device)


def _with_products(
    graph: ShardedGraph, kept: CachedPowers, by_power: dict[int, Tensor], device: torch.device, offload: bool
) -> ShardedGraph:
    products = {power: HostRows(rows, device) if offload else rows for power, rows in by_power.items()}
    return replace(graph, features=PropagatedInput(graph.block, kept.propagation, products), coded=None)
