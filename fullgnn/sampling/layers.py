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

import numpy as np

from fullgnn.errors import ConfigError
from fullgnn.kernels.dropout.mask import LOW
from fullgnn.kernels.dropout.philox import philox_4x32
from fullgnn.sampling.hop import PADDING, Hop
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.samplers import TrainingNodes
from fullgnn.tasks.draws import stream_key

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
        self._graph, self._key = graph, np.array(stream_key(seed, LAYERS))
        self._local = np.full(graph.num_nodes, -1, np.int32)  # scratch: the places of nodes among the sources of a hop
        self._factor = np.zeros(graph.num_nodes)  # scratch: of the kept nodes of a hop; 0: the node is not kept

    def sample(self, items: np.ndarray, epoch: int, batch: np.ndarray | None = None) -> list[Hop]:
        """See ``Sampler``.

        Args:
            batch: the items of all ranks; None: ``items`` are all.
        """
        own, every, hops = np.sort(items), np.sort(items if batch is None else batch), list[Hop]()
        for number, size in enumerate(self.sizes):
            kept, probability = self._drawn(every, size, number, epoch)
            self._factor[kept] = 1 / probability
            hops.append(self._hop(own))
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
        candidates, arcs = np.unique(self._graph.indices[self._places(targets)[0]], return_counts=True)
        probability = inclusion(arcs, size)
        counter = np.zeros((len(candidates), 4), np.uint64)
        counter[:, 0], counter[:, 2], counter[:, 3] = candidates, number, epoch & LOW
        words = philox_4x32(counter, self._key).astype(np.uint64)
        uniform = ((words[:, 0] << np.uint64(21)) ^ (words[:, 1] >> np.uint64(11))) / 2.0**53
        kept = uniform < probability
        return candidates[kept].astype(np.int64), probability[kept]

    def _hop(self, targets: np.ndarray) -> Hop:
        """The edges from the kept nodes to ``targets``."""
        places, counts = self._places(targets)
        factors = self._factor[self._graph.indices[places]]
        kept = factors > 0
        places, factors = places[kept], factors[kept]
        rows = np.repeat(np.arange(len(targets)), counts)[kept]
        sources = np.union1d(targets, self._graph.indices[places])
        self._local[sources] = np.arange(len(sources), dtype=np.int32)
        indices = np.empty(len(places) + PADDING, np.int32)[: len(places)]
        indices[:] = self._local[self._graph.indices[places]]
        indptr = np.zeros(len(targets) + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=len(targets)), out=indptr[1:])
        weighted = self._graph.weight is not None
        return Hop(
            sources.astype(np.int32), self._local[targets], indptr, indices, places if weighted else None, factors
        )

    def _places(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the edges of ``nodes`` are in the graph's ``indices``, one node after the other, and how many each
        has."""
        first = self._graph.indptr[nodes]
        counts = self._graph.indptr[nodes + 1] - first
        before = np.cumsum(counts) - counts
        return np.repeat(first - before, counts) + np.arange(counts.sum()), counts


def inclusion(weights: np.ndarray, size: int) -> np.ndarray:
    """min(1, c ``weights``), where c is such that the sum is ``size``; 1 for all if there are no more than that.

    Args:
        weights: (n,) positive.
    """
    if len(weights) <= size:
        return np.ones(len(weights))
    falling = np.sort(weights)[::-1].astype(np.float64)
    rest = np.cumsum(falling[::-1])[::-1]  # the sum of each weight and of those after it
    certain = np.arange(size)  # how many have the probability 1
    scale = (size - certain) / rest[:size]
    return np.minimum(1.0, scale[np.argmax(scale * falling[:size] <= 1)] * weights)


def layer(graph: HostGraph, num_hops: int, seed: int, sizes: list[int]) -> LayerBatches:
    """Some nodes for each layer, drawn anew in every epoch; see the module.

    Args:
        num_hops: how often the model reads neighbours.
        sizes: from the targets outwards, one for each hop.

    Raises:
        ConfigError: a key is out of range, or does not fit the model.
    """
    if len(sizes) != num_hops:
        example = ",".join(map(str, (list(sizes) + [2400] * num_hops)[:num_hops]))
        raise ConfigError(
            f"sampler.sizes has {len(sizes)} numbers, and the model reads neighbours {num_hops} times: give one for"
            f" each, as in sampler.sizes=[{example}]"
        )
    if min(sizes, default=1) < 1:
        raise ConfigError(f"sampler.sizes={list(sizes)} is out of range: each must be at least 1")
    return LayerBatches(graph, sizes, seed)
