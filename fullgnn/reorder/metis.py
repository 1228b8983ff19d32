"""METIS clusters numbered one after the other, so that few edges connect distant ids."""

import numpy as np
from scipy import sparse

from fullgnn.errors import ConfigError
from fullgnn.partition.kway import kway
from fullgnn.partition.pattern import undirected


def metis(adj: sparse.csr_array, seed: int, cluster_size: int = 200) -> np.ndarray:
    """Number the nodes cluster by cluster; inside a cluster they keep their order.

    METIS forms ``round(n / cluster_size)`` clusters with balanced numbers of nodes.

    Args:
        cluster_size: mean number of nodes in a cluster.

    Raises:
        MetisError: pymetis is missing or fails; :func:`~fullgnn.reorder.blockwise` then uses ``rcm``.
    """
    if cluster_size < 1:
        raise ConfigError(f"reorder.cluster_size is {cluster_size}: give 1 node per cluster or more.")
    num_nodes = adj.shape[0]
    num_clusters = max(1, round(num_nodes / cluster_size))
    if num_clusters == 1:
        return np.arange(num_nodes, dtype=np.int64)
    pattern = undirected(adj)
    if pattern.nnz == 0:
        return np.arange(num_nodes, dtype=np.int64)
    return np.argsort(kway(pattern, num_clusters, seed), kind="stable").astype(np.int64, copy=False)
