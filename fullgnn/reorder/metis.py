"""Clusters of METIS, one after the other: few edges between distant ids."""

import logging

import numpy as np
from scipy import sparse

from fullgnn.errors import ConfigError
from fullgnn.reorder.pattern import undirected
from fullgnn.reorder.rcm import rcm

logger = logging.getLogger(__name__)


def metis(adj: sparse.csr_array, seed: int, cluster_size: int = 200) -> np.ndarray:
    """Number the nodes cluster by cluster; inside a cluster they keep their order.

    ``round(n / cluster_size)`` clusters by multilevel k-way partitioning (Karypis and Kumar 1998), with
    balanced numbers of nodes. Without pymetis, or if it fails, the order is that of :func:`rcm` and a
    warning says so: a run never fails for want of an optional order.

    Args:
        cluster_size: mean number of nodes in a cluster.
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
    try:
        cluster = _clusters(pattern, num_clusters, seed)
    except Exception as error:  # whatever it is, RCM still gives a usable order
        logger.warning("reorder=metis falls back to rcm, since pymetis failed (%r): reinstall pymetis", error)
        return rcm(adj, seed)
    return np.argsort(cluster, kind="stable").astype(np.int64, copy=False)


def _clusters(pattern: sparse.csr_array, num_clusters: int, seed: int) -> np.ndarray:
    """(n,) the METIS cluster of each node."""
    import pymetis  # here, not above: the package is optional

    graph = pymetis.CSRAdjacency(pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64))
    options = pymetis.Options(seed=seed % 2**31)
    return np.asarray(pymetis.part_graph(num_clusters, graph, recursive=False, options=options).vertex_part)
