"""The samplers that a configuration can name.

Contract: ``sampler(graph, num_hops, seed, **own keys) -> Sampler``. A sampler that needs something of the whole graph
first, such as clusters, has an attribute ``prepare(graph, seed, **own keys)``, a function that rank 0 calls; the arrays
that it returns by name are then in ``graph.extra`` on every rank; ``remarks(graph.extra)`` may say what was found, see
``graph/remarks.py``, and ``check(graph, needs)`` refuse a graph before. A sampler that can draw on a GPU has a method
``on_gpu(device, counts_loops)``, which returns a ``Sampler`` whose hops are tensors there, with ``num_loops`` if these
are to be counted. The ``sample`` of a sampler with
the attribute ``reads_batch`` = True is also given the items of the whole batch, over all ranks. A sampler that counts
the reads of an epoch without drawing each batch has a method ``counts(batches, epoch)``, see ``NeighborBatches``.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from fullgnn.errors import ConfigError
from fullgnn.sampling.gpu_neighbors import GpuNeighborSampler
from fullgnn.sampling.hop import PADDING, Hop
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.neighbors import ALL, NeighborSampler

MOST_COUNTED_BYTES = 1 << 29
"""The reads of an epoch are counted by one draw of every node only if these draws take at most so much memory."""


class Sampler(Protocol):
    """Draws what a batch reads of the graph. The items of an epoch are shuffled and cut into batches."""

    items: np.ndarray  # (n,) int64, what an epoch consists of, ascending: training nodes, for example
    unit: int  # items for which ``loader.batch_size`` counts 1

    def part(self, batch: np.ndarray, rank: int, num_ranks: int) -> np.ndarray:
        """The items of a ``batch`` that are this rank's; every item is that of one rank."""

    def targets(self, items: np.ndarray) -> np.ndarray:
        """(num_targets,) int64, the training nodes of some items, ascending."""

    def sample(self, items: np.ndarray, epoch: int, *whole: np.ndarray) -> Sequence[Hop[Any]]:
        """The hops of the targets of some items, from the targets outwards."""

    def usual_size(self, num_items: int) -> tuple[int, int]:
        """How many inputs a usual batch of a rank with so many items has, and the bytes of its hops. A batch may be
        larger."""


class TrainingNodes:
    """Items that are training nodes."""

    unit = 1

    def part(self, batch: np.ndarray, rank: int, num_ranks: int) -> np.ndarray:
        """See ``Sampler``: consecutive ones of the sorted batch; the counts of two ranks differ by at most one."""
        return np.sort(batch)[len(batch) * rank // num_ranks : len(batch) * (rank + 1) // num_ranks]

    def targets(self, items: np.ndarray) -> np.ndarray:
        """See ``Sampler``: the items themselves."""
        return np.sort(items)


class NeighborBatches(TrainingNodes):
    """Batches of training nodes with drawn neighbours."""

    def __init__(self, graph: HostGraph, drawing: NeighborSampler, gpu: GpuNeighborSampler | None = None):
        self.items, self.drawing = graph.train, drawing
        self._graph, self._gpu = graph, gpu

    def on_gpu(self, device: torch.device, counts_loops: bool) -> "NeighborBatches":
        """The same batches, drawn on ``device``.

        Raises:
            ConfigError: it is no GPU that runs Triton.
        """
        return NeighborBatches(self._graph, self.drawing, GpuNeighborSampler(self.drawing, device, counts_loops))

    def sample(self, items: np.ndarray, epoch: int) -> Sequence[Hop[Any]]:
        """See ``Sampler``."""
        return (self._gpu or self.drawing).sample(items, epoch)

    def counts(self, batches: Sequence[np.ndarray], epoch: int) -> np.ndarray | None:
        """(num_nodes,) int32: how many of the ``batches`` of ``epoch``, each the items of a rank, read each node's
        features; None: drawing each batch takes less time or memory, or is done on a GPU."""
        num_nodes, mean_degree = self.drawing.num_nodes, len(self.drawing.indices) / self.drawing.num_nodes
        num_items, fanouts = max(map(len, batches), default=0), self.drawing.fanouts
        once = drawn = 0.0  # edges of one draw of every node at every hop, and those of all batches
        for number, fanout in enumerate(fanouts):
            edges = mean_degree if fanout == ALL else min(fanout, mean_degree)
            once += edges * num_nodes
            drawn += edges * usual_inputs(num_items, fanouts[:number], mean_degree, num_nodes) * len(batches)
        edge_bytes = 4 + 8 * self.drawing.keep_places + 8 * self.drawing.draw.weighted
        num_bytes = edge_bytes * once + 8 * num_nodes * len(fanouts)
        if self._gpu is not None or 2 * once > drawn or num_bytes > MOST_COUNTED_BYTES:
            return None
        return self.drawing.counts(batches, epoch)

    def usual_size(self, num_items: int) -> tuple[int, int]:
        """See ``Sampler``."""
        graph = self.drawing
        usual = num_items, graph.fanouts, len(graph.indices) / graph.num_nodes, graph.num_nodes
        return usual_inputs(*usual), hop_bytes(*usual)


def neighbor(
    graph: HostGraph,
    num_hops: int,
    seed: int,
    fanouts: list[int],
    replace: bool = False,
    weighted: bool = False,
) -> NeighborBatches:
    """Some neighbours of each node, drawn anew in every epoch; see ``NeighborSampler``.

    Args:
        num_hops: how often the model reads neighbours.
        fanouts: from the targets outwards, one for each hop.

    Raises:
        ConfigError: a key is out of range, or does not fit the model or the graph.
    """
    check_depth("fanouts", fanouts, num_hops, 10)
    places = graph.weight is not None
    arrays = graph.indptr, graph.indices, fanouts, graph.weight
    return NeighborBatches(graph, NeighborSampler(*arrays, replace, weighted, seed, places))


def check_depth(key: str, numbers: Sequence[int], num_hops: int, usual: int) -> None:
    """Refuse a ``key`` of the sampler with another number of ``numbers`` than the model has hops.

    Args:
        usual: a number for the hops of the example that lack one.

    Raises:
        ConfigError: one line that names both.
    """
    if len(numbers) != num_hops:
        example = ",".join(map(str, (list(numbers) + [usual] * num_hops)[:num_hops]))
        raise ConfigError(
            f"sampler.{key} has {len(numbers)} numbers, and the model reads neighbours {num_hops} times: give one for"
            f" each, as in sampler.{key}=[{example}]"
        )


def usual_inputs(num_targets: int, fanouts: Sequence[int], mean_degree: float, num_nodes: int) -> int:
    """How many inputs a usual batch of a rank has: B prod_h min(f_h, d), at most all nodes.

    Source: Li et al., "Fused sampling and overlapped transfer" (2025), where M = B F prod_h min(f_h, d) is the number
    of elements of a pool of pinned memory; B are the targets, F the features, f_h the fan-outs, d the mean degree.
    """
    num_inputs = float(num_targets)
    for fanout in fanouts:
        num_inputs *= max(1.0, mean_degree if fanout == ALL else min(fanout, mean_degree))
    return max(1, min(int(num_inputs), num_nodes))


def hop_bytes(num_targets: int, fanouts: Sequence[int], mean_degree: float, num_nodes: int) -> int:
    """Bytes of the hops of a usual batch, with a quarter more. The hops of a larger batch travel through the pipe."""
    total, targets = 0.0, num_targets
    for number, fanout in enumerate(fanouts):
        sources = min(num_nodes, targets + usual_inputs(num_targets, fanouts[: number + 1], mean_degree, 1 << 62))
        edges = targets * (mean_degree if fanout == ALL else min(fanout, mean_degree))
        total += 4 * (2 * targets + 1 + edges + PADDING + sources) + 256
        targets = sources
    return int(1.25 * total) + 8 * num_targets + 64
