"""Neighbour sampling: for each target, at most ``fanout`` of its neighbours; hop after hop, from the targets outwards.

``SampleNeighbors`` and ``toBlock``, the two operators of the usual pipeline, are one pass here. No hash table finds out
whether a node has been seen, as in DGL, or in ``toBlockFast`` of Li et al., "Fused sampling and overlapped transfer"
(2025), which keeps one of two: a bitmap has a bit for each node, and the local id of a node is the number of ones
before its bit. So the sources of a hop are in ascending order whatever the order in which they were found, and

1. the targets of a hop are no prefix of its sources: ``Hop.target_index`` tells where they are;
2. the result is the same to the bit for any number of threads.

What is random about a target is a function of (seed, epoch, hop, node) alone, from the counter-based generator of the
dropout masks (``kernels/dropout/philox.py``): word d % 4 of

    Philox4x32-10(counter = (node, d // 4, hop, epoch), key = stream_key(seed, SAMPLING))

draws neighbour d. So a node gets the same neighbours in every batch of the epoch in which it occurs at that hop, on any
number of ranks and workers. ``_neighbors_cpu.py`` is the compiled code.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import torch

from fullgnn.errors import ConfigError, DataError
from fullgnn.kernels.dropout.philox import LOW
from fullgnn.kernels.support.process import parallel_for
from fullgnn.room import module_on_use
from fullgnn.sampling.hop import PADDING, Hop
from fullgnn.tasks.draws import stream_key

if TYPE_CHECKING:
    from fullgnn.sampling import _neighbors_cpu
else:
    _neighbors_cpu = module_on_use("fullgnn.sampling._neighbors_cpu")

SAMPLING = 0x73616D70
"""Tag of the random stream of the neighbours."""
ALL = -1
"""The fan-out that takes all neighbours."""
MAX_FANOUT = 1 << 24
CHUNKS_PER_THREAD = 4
MIN_SHARED_EDGES = 1 << 14  # a batch that draws fewer, at most, is sampled by one thread: waking others costs as much


class Draw(IntEnum):
    """How a target's neighbours are drawn, where it has more than ``fanout``.

    Each draw tells for every edge the *factor* with which it counts in a sum over the neighbours, so that the expected
    value of the sum is that over all neighbours: the reciprocal of the edge's expected number of occurrences.
    """

    UNIFORM = 0
    """Without replacement; each set of neighbours has the same probability. Factor: degree / fan-out."""
    UNIFORM_REPLACE = 1
    """With replacement: always ``fanout`` edges, also of targets with fewer. Factor: degree / fan-out."""
    WEIGHTED_REPLACE = 2
    """With replacement, in proportion to the weights of the edges. Factor: sum of the weights / (weight * fan-out)."""
    WEIGHTED = 3
    """Without replacement, one after the other in proportion to the weights of those that are left (Efraimidis and
    Spirakis, 2006). Factor: 1 / (1 - exp(-weight * t)), where t is the smallest key Exp(1) / weight that did not win
    (Cohen and Kaplan, "Summarizing data using bottom-k sketches", 2007)."""

    @classmethod
    def of(cls, replace: bool, weighted: bool) -> "Draw":
        if weighted:
            return cls.WEIGHTED_REPLACE if replace else cls.WEIGHTED
        return cls.UNIFORM_REPLACE if replace else cls.UNIFORM

    @property
    def weighted(self) -> bool:
        return self in (Draw.WEIGHTED, Draw.WEIGHTED_REPLACE)


class NeighborSampler:
    """Samples the neighbours of targets in one graph, held on the host.

    Args:
        indptr: (n + 1,) int64; indices: (nnz,) int32: row i holds the nodes that node i reads from.
        fanouts: from the targets outwards; ``ALL`` takes all neighbours.
        weight: (nnz,) weights of the edges, none negative; only the weighted draws read them.
        replace, weighted: see ``Draw``.
        seed: of the run.
        keep_places: whether the hops tell the places of their edges; the weighted draws always do.

    Raises:
        ConfigError: a fan-out is out of range, or the weighted draw of a graph without weights is asked for.
        DataError: a weight is negative.
    """

    def __init__(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        fanouts: Sequence[int],
        weight: np.ndarray | None = None,
        replace: bool = False,
        weighted: bool = False,
        seed: int = 0,
        keep_places: bool = False,
    ):
        check_fanouts(fanouts)
        if weighted and weight is None:
            raise ConfigError("sampler.weighted=true needs edge weights, and the graph has none: set it to false")
        self.indptr, self.indices = indptr.astype(np.int64, copy=False), indices
        self.fanouts, self.draw = tuple(fanouts), Draw.of(replace, weighted)
        self.key, self.keep_places = stream_key(seed, SAMPLING), keep_places or weighted
        self.weights = self.cumulative = np.empty(0, np.float64)
        """(nnz,) float64 weights of the edges, and their running sums in each row; (0,): no draw reads them."""
        if weighted:
            assert weight is not None
            self.weights = weight.astype(np.float64)
            if self.weights.min(initial=0) < 0:
                raise DataError("sampler.weighted=true needs weights of at least 0, and some edges have negative ones")
            if replace:
                self.cumulative = _running_sums(self.indptr, self.weights)
        self._scratch: dict[int, tuple[np.ndarray, ...]] = {}  # by the number of threads

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    def sample(self, targets: np.ndarray, epoch: int, num_threads: int | None = None) -> list[Hop[np.ndarray]]:
        """Sample the hops of a batch.

        Args:
            targets: (num_targets,) GLOBAL ids, ascending and distinct.
            num_threads: None: as many as torch may use.

        Returns:
            one ``Hop`` for each fan-out, from the targets outwards: the sources of one are the targets of the next;
            none for a model that reads no neighbours.
        """
        return self._draw(targets, epoch, self.fanouts, 0, num_threads)

    def counts(self, batches: Sequence[np.ndarray], epoch: int) -> np.ndarray:
        """(num_nodes,) int32: how many of the ``batches`` of ``epoch`` read the features of each node.

        A node has the same neighbours in all batches of an epoch, so the neighbours of every node are drawn once for
        each hop, and each batch finds its inputs in them.

        Args:
            batches: (num_targets,) GLOBAL ids of each batch.
        """
        # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
        nodes, sources = np.arange(self.num_nodes), [np.empty(0, np.int32)]
        starts, before = np.empty((len(self.fanouts), self.num_nodes + 1), np.int64), 0
        for number, fanout in enumerate(self.fanouts):
            (hop,) = self._draw(nodes, epoch, (fanout,), number)  # its sources are all nodes: LOCAL ids are GLOBAL
            np.add(hop.indptr, before, out=starts[number])
            sources.append(hop.indices)
            before += hop.num_edges
        joined = np.concatenate(sources)
        # The threads' counts take no more memory than the draws.
        num_threads = max(1, min(torch.get_num_threads(), len(joined) // self.num_nodes))
        bits, targets_of_hop = np.zeros((2, num_threads, -(-self.num_nodes // 64)), np.uint64)
        counts = np.zeros((num_threads, self.num_nodes), np.int32)

        def count(thread: int) -> None:
            for targets in batches[thread::num_threads]:
                _neighbors_cpu.count_reads(
                    targets, starts, joined, bits[thread], targets_of_hop[thread], counts[thread]
                )

        parallel_for(count, range(num_threads))
        return counts.sum(0, dtype=np.int32)

    def _draw(
        self, targets: np.ndarray, epoch: int, fanouts: Sequence[int], first_hop: int, num_threads: int | None = None
    ) -> list[Hop[np.ndarray]]:
        """The hops of a batch with these ``fanouts``, the first of which is its hop ``first_hop``; see ``sample``."""
        if not fanouts:
            return []
        # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
        num_threads = torch.get_num_threads() if num_threads is None else num_threads
        sizes, (num_starts, num_edges, num_nodes) = self._most(len(targets), fanouts)
        num_threads = num_threads if num_edges >= MIN_SHARED_EDGES else 1
        num_chunks = num_threads * CHUNKS_PER_THREAD if num_threads > 1 else 1
        if num_threads not in self._scratch:
            self._scratch[num_threads] = _scratch(self.num_nodes, num_threads)
        nodes = np.empty(num_nodes, np.int32)
        nodes[: len(targets)] = targets
        starts, local = np.empty(num_starts, np.int32), np.empty(num_edges, np.int32)
        target_index = np.empty(num_nodes, np.int32)
        places = np.empty(num_edges if self.keep_places else 0, np.int64)
        factors = np.empty(num_edges if self.draw.weighted else 0, np.float64)
        tickets = np.zeros((2, len(fanouts) * _neighbors_cpu.PHASES + 1), np.int64)
        per_chunk = np.zeros((2, len(fanouts), num_chunks), np.int64)
        shared = (
            num_chunks,
            (self.indptr, self.indices, self.cumulative, self.weights),
            np.array(fanouts, np.int64),
            first_hop,
            int(self.draw),
            tuple(np.uint64(word) for word in (*self.key, epoch & LOW)),
            self._scratch[num_threads],
            (tickets, *per_chunk),
            (sizes, nodes, target_index, starts, local, places, factors),
        )
        parallel_for(lambda thread: _neighbors_cpu.sample(thread, *shared), range(num_threads))
        hops, first_target = list[Hop[np.ndarray]](), 0
        for first_start, first_edge, first_source, num_targets, num_found, num_sources in sizes.tolist():
            edges = slice(first_edge, first_edge + num_found)
            hops.append(
                Hop(
                    nodes[first_source : first_source + num_sources],
                    target_index[first_target : first_target + num_targets],
                    starts[first_start : first_start + num_targets + 1],
                    local[edges],
                    places[edges] if self.keep_places else None,
                    factors[edges] if self.draw.weighted else None,
                )
            )
            first_target = first_source
        return hops

    def _most(self, num_targets: int, fanouts: Sequence[int]) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Where each hop begins in arrays that hold the largest batch of ``num_targets``, and their lengths.

        The memory of an array that a batch does not reach is never touched.
        """
        sizes = np.zeros((len(fanouts), 6), np.int64)
        starts, edges, nodes, most = 0, 0, num_targets, num_targets
        sizes[0, 3] = num_targets
        for row, fanout in zip(sizes, fanouts):
            drawn = len(self.indices) if fanout == ALL else most * fanout
            if not (fanout != ALL and self.draw in (Draw.UNIFORM_REPLACE, Draw.WEIGHTED_REPLACE)):
                drawn = min(drawn, len(self.indices))
            row[:3] = starts, edges, nodes
            starts += most + 1
            most = min(self.num_nodes, most + drawn)
            edges += drawn + PADDING
            nodes += most
        return sizes, (starts, edges, nodes)


def _scratch(num_nodes: int, num_threads: int) -> tuple[np.ndarray, ...]:
    """The bitmaps of some threads, see ``_neighbors_cpu.sample``; empty between two batches."""
    num_summaries = -(-num_nodes // 4096)
    # Each thread's row begins at a cache line of its own.
    summary = np.zeros((num_threads, -(-num_summaries // 8) * 8), np.uint64)
    num_words = 64 * summary.shape[1]
    bits = np.zeros((num_threads, num_words), np.uint64)
    return bits, summary, np.empty(num_words, np.uint64), np.empty(num_words, np.int32)


def check_fanouts(fanouts: Sequence[int]) -> None:
    """Refuse fan-outs that are out of range.

    Raises:
        ConfigError: one line that names the first one.
    """
    for fanout in fanouts:
        if fanout != ALL and not 1 <= fanout <= MAX_FANOUT:
            raise ConfigError(
                f"sampler.fanouts has {fanout}: give the number of neighbours of a node at each hop, 1 to"
                f" {MAX_FANOUT}, or {ALL} for all"
            )


def _running_sums(indptr: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(nnz,) float64 running sums of each row."""
    total = np.cumsum(weights)
    before = np.concatenate([[0.0], total])[indptr[:-1]]
    return total - np.repeat(before, np.diff(indptr))
