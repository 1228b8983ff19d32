"""Cluster-GCN (Chiang et al., KDD 2019): batches of clusters of nodes, with all edges inside a group of clusters.

METIS cuts the graph into clusters with few edges between them, once. In every epoch the clusters are shuffled, and
``group_size`` of them form a group: the subgraph that their nodes induce, edges between the clusters of a group
included (the paper's stochastic multiple partitions). A layer multiplies by the adjacency of the group, normalised by
its own degrees. A batch has ``loader.batch_size`` groups over all ranks, without edges between the groups, so the
result does not depend on which rank computes a group. The paper's diagonal enhancement is not built in.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.partition.kway import MetisError, kway
from fullgnn.partition.partition import Partition
from fullgnn.partition.pattern import undirected
from fullgnn.room import module_on_use
from fullgnn.sampling.hop import PADDING, Hop
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.schemes.base import BlockRequest

if TYPE_CHECKING:
    from fullgnn.sampling import _clusters_cpu
else:
    _clusters_cpu = module_on_use("fullgnn.sampling._clusters_cpu")

log = logging.getLogger(__name__)

ORDER, BOUNDS = "cluster_order", "cluster_bounds"


def prepare_clusters(graph: Graph, seed: int, num_clusters: int, group_size: int = 1) -> dict[str, np.ndarray]:
    """Cut ``graph`` into clusters; without METIS, into equal ranges of ids, and a warning is logged.

    Returns:
        the nodes of one cluster after the other, and where each cluster begins.

    Raises:
        ConfigError: a number is out of range.
    """
    numbers = (
        ("num_clusters", num_clusters, graph.num_nodes, "nodes"),
        ("group_size", group_size, num_clusters, "clusters"),
    )
    for key, number, most, of in numbers:
        if not 1 <= number <= most:
            raise ConfigError(f"sampler.{key}={number} is out of range: choose 1 to {most}, the number of {of}")
    pattern = undirected(graph.adjacency(np.float32))
    bounds = Partition.equal(graph.num_nodes, num_clusters).bounds
    part_id = np.repeat(np.arange(num_clusters), np.diff(bounds))
    if 1 < num_clusters < graph.num_nodes and pattern.nnz:
        try:
            part_id = kway(pattern, num_clusters, seed)
        except MetisError as error:
            log.warning("sampler=cluster takes ranges of node ids as clusters, since %s", error)
    sizes = np.bincount(part_id, minlength=num_clusters)
    order = np.argsort(part_id, kind="stable").astype(np.int64)
    return {ORDER: order, BOUNDS: np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)}


def check_weights(graph: Graph, request: BlockRequest) -> None:
    """Refuse negative weights for a model that divides by row sums: those inside a group are known only in its batch.

    Raises:
        DataError: one line with the number of negative weights.
    """
    normalized = [propagation for propagation in request.propagations if propagation.needs_row_sums]
    if graph.weight is None or not normalized or graph.weight.min(initial=1) > 0:
        return
    raise DataError(
        f"{np.count_nonzero(graph.weight < 0)} arcs have negative weights, and sampler=cluster divides by the sums of"
        " weights inside each group of clusters, which may become 0 or less: use"
        f" {normalized[0].without_sums or 'another model'}, sampler=neighbor or weights that are not negative"
    )


def cluster_remarks(arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """What there is to say of the ``arrays`` of ``prepare_clusters``, see ``graph/remarks.py``."""
    return {"empty_clusters": int(np.count_nonzero(np.diff(arrays[BOUNDS]) == 0))}


class ClusterBatches:
    """Batches of groups of clusters.

    Args:
        graph: its ``extra`` has the arrays of ``prepare_clusters``.
        num_hops: how often the model reads neighbours.
        group_size: clusters of a group.
    """

    def __init__(self, graph: HostGraph, num_hops: int, group_size: int):
        self.graph, self._num_hops, self.unit = graph, num_hops, group_size
        self.order, self.bounds = graph.extra[ORDER], graph.extra[BOUNDS]
        self.items = np.arange(len(self.bounds) - 1)
        self._is_train = np.zeros(graph.num_nodes, bool)
        self._is_train[graph.train] = True
        self._group_of = np.full(graph.num_nodes, -1, np.int32)  # scratch: of the nodes of the current batch
        self._local = np.empty(graph.num_nodes, np.int32)

    def part(self, batch: np.ndarray, rank: int, num_ranks: int) -> np.ndarray:
        """See ``Sampler``: the clusters of consecutive groups."""
        num_groups = -(-len(batch) // self.unit)
        first, stop = (num_groups * index // num_ranks * self.unit for index in (rank, rank + 1))
        return batch[first:stop]

    def targets(self, items: np.ndarray) -> np.ndarray:
        """See ``Sampler``: the training nodes of the clusters."""
        nodes = np.sort(self._nodes(items)[0])
        return nodes[self._is_train[nodes]]

    def sample(self, items: np.ndarray, epoch: int) -> list[Hop[np.ndarray]]:
        """See ``Sampler``: the induced subgraph of each group, for every layer; the last one computes the targets."""
        nodes, group = self._nodes(items)
        sources = np.sort(nodes)
        self._group_of[nodes] = group
        self._local[sources] = np.arange(len(sources), dtype=np.int32)
        graph = self.graph
        most = int((graph.indptr[sources + 1] - graph.indptr[sources]).sum())
        indptr, indices = np.zeros(len(sources) + 1, np.int32), np.empty(most + PADDING, np.int32)
        places, own = np.empty(most, np.int64), np.full(len(sources), -1, np.int64)
        count = _clusters_cpu.induce(
            graph.indptr, graph.indices, sources, self._group_of, self._local, indptr, indices, places, own
        )
        self._group_of[nodes] = -1
        whole: Hop[np.ndarray] = Hop(
            sources.astype(np.int32),
            np.arange(len(sources), dtype=np.int32),
            indptr,
            indices[:count],
            places[:count] if graph.weight is not None else None,
            sums=self._sums(indptr, places[:count], own),
        )
        if self._num_hops == 0:
            return []
        return [_restricted(whole, np.flatnonzero(self._is_train[sources])), *[whole] * (self._num_hops - 1)]

    def usual_size(self, num_items: int) -> tuple[int, int]:
        """See ``Sampler``."""
        share = min(1.0, num_items / len(self.items))
        num_nodes, num_edges = share * self.graph.num_nodes, share * len(self.graph.indices)
        num_bytes = 1.5 * self._num_hops * (12 * num_edges + 40 * num_nodes) + 4096
        return max(1, int(1.2 * num_nodes)), int(num_bytes)

    def _nodes(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nodes of some clusters, and the number of the group of each."""
        parts = [self.order[self.bounds[item] : self.bounds[item + 1]] for item in items]
        sizes = [len(part) for part in parts]
        groups = np.repeat(np.arange(len(items)) // self.unit, sizes)
        return np.concatenate([np.empty(0, np.int64), *parts]), groups

    def _sums(self, indptr: np.ndarray, places: np.ndarray, own: np.ndarray) -> np.ndarray:
        """``Hop.sums``.

        Args:
            own: (num_sources,) place of each node's stored self-loop; -1: it has none.
        """
        weight = self.graph.weight
        if weight is None:
            stored, loop = np.diff(indptr).astype(np.float64), (own >= 0).astype(np.float64)
        else:
            running = np.concatenate([[0.0], np.cumsum(weight[places], dtype=np.float64)])
            stored, loop = running[indptr[1:]] - running[indptr[:-1]], np.where(own >= 0, weight[own], 0.0)
        return np.maximum(np.stack([stored, stored - loop + 1]), 0)


def _restricted(hop: Hop[np.ndarray], rows: np.ndarray) -> Hop[np.ndarray]:
    """The same hop with some of its targets."""
    counts = np.diff(hop.indptr)[rows]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    edges = np.repeat(hop.indptr[rows] - indptr[:-1], counts) + np.arange(indptr[-1])
    indices = np.empty(len(edges) + PADDING, np.int32)[: len(edges)]
    indices[:] = hop.indices[edges]
    places = None if hop.places is None else hop.places[edges]
    return Hop(hop.sources, hop.target_index[rows], indptr, indices, places, sums=hop.sums)


def cluster(graph: HostGraph, num_hops: int, seed: int, num_clusters: int, group_size: int = 1) -> ClusterBatches:
    """Groups of clusters of nodes with the edges inside each group; see the module.

    Args:
        num_hops: how often the model reads neighbours.
        num_clusters: how many clusters the graph is cut into.
        group_size: clusters of a group.

    Raises:
        ConfigError: a number is out of range.
    """
    return ClusterBatches(graph, num_hops, group_size)


cluster.prepare = prepare_clusters  # type: ignore[attr-defined]
cluster.check = check_weights  # type: ignore[attr-defined]
cluster.remarks = cluster_remarks  # type: ignore[attr-defined]
