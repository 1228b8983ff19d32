"""Which nodes have their features on the device of every rank, so that batches need not fetch them from the host.

Contract of a cache: ``cache(graph, row_bytes, **own keys) -> ids``, the (k,) int64 ids of the nodes, ascending, where
``row_bytes`` are the bytes of one encoded row. Rank 0 calls it once. The batches are the same with any cache.
"""

import numpy as np

from fullgnn.errors import ConfigError
from fullgnn.graph import Graph


def cache_nothing(graph: Graph, row_bytes: int) -> np.ndarray:
    """Every row is fetched from the host."""
    return np.empty(0, np.int64)


def cache_by_degree(graph: Graph, row_bytes: int, megabytes: float) -> np.ndarray:
    """The nodes that most nodes read, as PaGraph chooses them (Lin et al., SoCC 2020).

    Args:
        megabytes: size of the cached rows on each device.

    Raises:
        ConfigError: ``megabytes`` is negative.
    """
    if not megabytes >= 0:
        raise ConfigError(f"cache.megabytes={megabytes} is out of range: give 0 or more")
    count = min(graph.num_nodes, int(megabytes * 1e6) // max(1, row_bytes))
    num_readers = np.bincount(graph.indices, minlength=graph.num_nodes)
    return np.sort(np.argsort(-num_readers, kind="stable")[:count])
