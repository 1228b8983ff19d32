"""Layer-wise sampling: some nodes for each layer of a batch, whatever the number of neighbours of its targets.

All targets of a batch, those of every rank, have one set of candidates, the nodes that they read. A candidate u is kept
with the probability

    p_u = min(1, c arcs_u),    c such that the probabilities add up to the size of the layer

where arcs_u are the arcs from u to the targets, and each on its own (Poisson sampling), so that the number of kept
nodes varies around that size. An edge from a kept node counts with the factor 1 / p_u: the expected value of a sum over
the kept neighbours is that over all. The kept nodes and the targets are the targets of the next hop.

Whether a node is kept is a function of (seed, epoch, hop, node) and of the batch. Every rank draws for the whole batch
and keeps the edges of its own targets, so the batches do not depend on the number of ranks.

Sources: Zou et al., "Layer-dependent importance sampling for training deep and large graph convolutional networks"
(LADIES), NeurIPS 2019, for candidates among the neighbours of the layer; Chen, Ma and Xiao, "FastGCN", ICLR 2018, for
importance sampling of a layer. Both draw with replacement, in proportion to squared entries of the adjacency.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fullgnn.errors import ConfigError
from fullgnn.kernels.dropout.philox import LOW
from fullgnn.room import module_on_use
from fullgnn.sampling.hop import PADDING, Hop
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.samplers import TrainingNodes, check_depth
from fullgnn.tasks.draws import stream_key

if TYPE_CHECKING:
    from fullgnn.sampling import _layers_cpu
else:
    _layers_cpu = module_on_use("fullgnn.sampling._layers_cpu")

LAYERS = 0x6C617972
"""Tag of the random stream of the kept nodes."""


class LayerBatches(TrainingNodes):
    """Batches of training nodes with nodes drawn for each layer.

    Args:
        sizes: how many nodes of a layer are drawn, in the mean, from the targets outwards.
    """

    reads_batch = True

    def __init__(self, graph: HostGraph, sizes: Sequence[int], seed: int):
        self.items, self.sizes = graph.train, tuple(sizes)
        self._graph, self._key = graph, [np.uint64(word) for word in stream_key(seed, LAYERS)]
        self._arcs = np.zeros(graph.num_nodes, np.int32)  # scratch: the arcs of each candidate of a hop
        self._local = np.full(graph.num_nodes, -1, np.int32)  # scratch: the places of nodes among the sources of a hop
        self._factor = np.zeros(graph.num_nodes)  # scratch: of the kept nodes of a hop; 0: the node is not kept

    def sample(self, items: np.ndarray, epoch: int, batch: np.ndarray | None = None) -> list[Hop[np.ndarray]]:
        """See ``Sampler``.

        Args:
            batch: the items of all ranks; None: ``items`` are all.
        """
        own, every, hops = np.sort(items), np.sort(items if batch is None else batch), list[Hop[np.ndarray]]()
        for number, size in enumerate(self.sizes):
            kept, probability = self._drawn(every, size, number, epoch)
            self._factor[kept] = 1 / probability
            hops.append(self._hop(own, len(kept)))
            self._factor[kept] = 0
            own, every = hops[-1].sources.astype(np.int64), np.union1d(every, kept)
        return hops

    def usual_size(self, num_items: int) -> tuple[int, int]:
        """See ``Sampler``."""
        num_nodes, targets, num_bytes = self._graph.num_nodes, num_items, 0.0
        mean_degree = len(self._graph.indices) / max(1, num_nodes)
        for size in self.sizes:
            sources, edges = min(num_nodes, targets + size), targets * min(mean_degree, 2.0 * size)
            num_bytes += 4 * (2 * targets + 1 + PADDING + sources) + 20 * edges + 512
            targets = sources
        return max(1, min(num_nodes, int(1.2 * targets))), int(1.5 * num_bytes) + 64

    def _drawn(self, targets: np.ndarray, size: int, number: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The kept nodes of hop ``number``, ascending, and the probability of each."""
        graph = self._graph
        memory = np.empty(min(self._num_arcs(targets), graph.num_nodes), np.int64)
        nodes = memory[: _layers_cpu.candidates(graph.indptr, graph.indices, targets, self._arcs, memory)]
        probability = inclusion(self._arcs[nodes], size)
        self._arcs[nodes] = 0
        is_kept = np.empty(len(nodes), bool)
        _layers_cpu.draw(nodes, probability, np.uint64(number), np.uint64(epoch & LOW), *self._key, is_kept)
        kept = nodes[is_kept]
        order = np.argsort(kept)
        return kept[order], probability[is_kept][order]

    def _hop(self, targets: np.ndarray, num_kept: int) -> Hop[np.ndarray]:
        """The edges from the kept nodes, ``num_kept`` of them, to ``targets``."""
        graph, most = self._graph, self._num_arcs(targets)
        indptr, places, factors = np.empty(len(targets) + 1, np.int32), np.empty(most, np.int64), np.empty(most)
        sources = np.empty(len(targets) + num_kept, np.int64)
        count, num_sources = _layers_cpu.kept_edges(
            graph.indptr, graph.indices, targets, self._factor, self._local, indptr, places, factors, sources
        )
        places, factors, sources = places[:count].copy(), factors[:count].copy(), np.sort(sources[:num_sources])
        self._local[sources] = np.arange(num_sources, dtype=np.int32)
        indices = np.empty(count + PADDING, np.int32)[:count]
        indices[:] = self._local[graph.indices[places]]
        target_index = self._local[targets]
        self._local[sources] = -1
        weighted = graph.weight is not None
        return Hop(sources.astype(np.int32), target_index, indptr, indices, places if weighted else None, factors)

    def _num_arcs(self, nodes: np.ndarray) -> int:
        """How many edges lead to ``nodes``."""
        return int((self._graph.indptr[nodes + 1] - self._graph.indptr[nodes]).sum())


def inclusion(weights: np.ndarray, size: int) -> np.ndarray:
    """min(1, c ``weights``), where c is such that the sum is ``size``; 1 for all if there are no more than that.

    Args:
        weights: (n,) positive.
    """
    if len(weights) <= size:
        return np.ones(len(weights))
    falling = np.sort(np.partition(weights, -size)[-size:])[::-1].astype(np.float64)  # the largest ones
    rest = weights.sum(dtype=np.float64) - np.cumsum(falling) + falling  # the sum of each weight and of those after it
    certain = np.arange(size)  # how many have the probability 1
    scale = (size - certain) / rest
    return np.minimum(1.0, scale[np.argmax(scale * falling <= 1)] * weights)


def layer(graph: HostGraph, num_hops: int, seed: int, sizes: list[int]) -> LayerBatches:
    """Some nodes for each layer, drawn anew in every epoch; see the module.

    Args:
        num_hops: how often the model reads neighbours.
        sizes: from the targets outwards, one for each hop.

    Raises:
        ConfigError: a key is out of range, or does not fit the model.
    """
    check_depth("sizes", sizes, num_hops, 2400)
    if min(sizes, default=1) < 1:
        raise ConfigError(f"sampler.sizes={list(sizes)} is out of range: each must be at least 1")
    return LayerBatches(graph, sizes, seed)
