"""Apply a reordering inside each block row, or to the whole graph."""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from fullgnn.errors import ConfigError, PartitionError
from fullgnn.partition import contiguous

Reordering = Callable[[sparse.csr_array, int], np.ndarray]


def blockwise(adj: sparse.csr_array, method: Reordering, num_blocks: int, seed: int) -> np.ndarray:
    """Reorder each diagonal block on its own: Algorithm 2 of Miao et al. (J. Software 34(9), 2023).

    No node leaves its block, so each of the ``num_blocks ** 2`` blocks keeps its number of entries
    (Property 1 of the paper), which no whole-graph order does. ``num_blocks=1`` is the whole graph.

    Args:
        method: ``method(block, seed) -> perm`` of the block; every block gets the same seed.
        num_blocks: the blocks are those of :func:`~fullgnn.partition.contiguous`.

    Returns:
        (n,) int64 GLOBAL: new node ``i`` is old node ``perm[i]``.
    """
    if num_blocks < 1:
        raise ConfigError(f"reorder.num_blocks is {num_blocks}: give 1 (the whole graph) or more.")
    num_rows, num_columns = adj.shape
    if num_rows != num_columns:
        raise PartitionError(f"Cannot reorder a {num_rows} x {num_columns} adjacency: give a square one.")
    partition = contiguous(num_rows, num_blocks)
    perm = np.empty(partition.num_nodes, dtype=np.int64)
    for part in range(num_blocks):
        rows = partition.slice(part)
        size = rows.stop - rows.start
        order = np.asarray(method(adj[rows, rows], seed))
        if not _is_permutation(order, size):
            raise PartitionError(
                f"Reordering {_name(method)} did not return a permutation of the {size} nodes of block {part}"
                ": return each of 0..n-1 once, as integers."
            )
        perm[rows] = order + rows.start
    return perm


def _is_permutation(order: np.ndarray, size: int) -> bool:
    if order.shape != (size,):
        return False
    if size == 0:  # an empty block: numpy gives an empty list the type float64
        return True
    if not np.issubdtype(order.dtype, np.integer):
        return False
    seen = np.zeros(size, dtype=bool)
    seen[order[(order >= 0) & (order < size)]] = True
    return bool(seen.all())  # size entries, all size values seen: each exactly once


def _name(method: Reordering) -> str:
    """``rcm`` for the function and for Hydra's ``functools.partial`` of it."""
    function = getattr(method, "func", method)
    return getattr(function, "__name__", repr(function))
