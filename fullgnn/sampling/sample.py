"""A sample: the part of a batch that one rank reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches
from fullgnn.sampling.hop import Hop
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.samplers import Sampler
from fullgnn.tasks.task import NodeTask


@dataclass(frozen=True, eq=False)
class Sample:
    """What one rank reads of a batch."""

    targets: np.ndarray  # (num_targets,) int64, this rank's training nodes, ascending
    hops: Sequence[Hop[Any]]  # from the targets outwards
    total: float  # of the whole batch, over all ranks; see ``NodeTask.total``

    @property
    def inputs_where_drawn(self) -> np.ndarray | Tensor:
        """(num_inputs,) the nodes whose features are read, ascending; on the device where they were drawn there."""
        return self.hops[-1].sources if self.hops else self.targets

    @cached_property
    def inputs(self) -> np.ndarray:
        """``inputs_where_drawn``, on the host."""
        nodes = self.inputs_where_drawn
        return nodes if isinstance(nodes, np.ndarray) else nodes.cpu().numpy()  # the host waits

    @property
    def num_inputs(self) -> int:
        """How many nodes ``inputs`` are."""
        return len(self.inputs_where_drawn)

    @property
    def num_edges(self) -> int:
        """The drawn edges of all hops."""
        return sum(hop.num_edges for hop in self.hops)


class BatchSampler:
    """Draws the batches of one rank.

    Args:
        task: tells the normaliser of a batch.
        batch_size: how often ``sampler.unit`` items form a batch, over all ranks.
        rank, num_ranks: of the parts into which a batch is cut. If the ``graph`` is split, each rank shuffles and draws
            its own training nodes.
    """

    def __init__(
        self,
        graph: HostGraph,
        sampler: Sampler,
        task: NodeTask,
        batch_size: int,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
    ):
        self.graph, self.sampler = graph, sampler
        self.labels = task.targets(read_only_tensor(graph.labels))
        """What the task learns of every node of the graph, in the form of ``Task.targets``."""
        self._step, self._task, self._seed = batch_size * sampler.unit, task, seed
        self._rank, self._num_ranks, self.num_parts = rank, num_ranks, 0
        self._items = [sampler.items]
        self.held: np.ndarray | None = None
        """(num_nodes,) bool, what the part of this rank holds; None: there are no parts."""
        split = graph.split
        if split is not None:
            self._step, self.num_parts = -(-batch_size // split.num_parts), split.num_parts
            self._items = [split.train[split.part == part] for part in range(split.num_parts)]
            self.held = np.zeros(graph.num_nodes, bool)
            self.held[split.nodes(rank)] = True
        self.num_batches = max(num_batches(len(items), self._step) for items in self._items)
        self._epoch, self._orders = -1, self._items

    def sample(self, epoch: int, number: int) -> Sample:
        """Draw what this rank reads of batch ``number`` of ``epoch``."""
        batch, own = self._items_of(epoch, number)
        total = self._task.total(self.labels[torch.from_numpy(self.sampler.targets(batch))])
        whole = (batch,) if getattr(self.sampler, "reads_batch", False) else ()
        sample = Sample(self.sampler.targets(own), self.sampler.sample(own, epoch, *whole), total)
        if self.held is not None and not self.held[sample.inputs].all():
            raise RuntimeError(f"batch {number} of epoch {epoch} reads nodes that the part of rank {self._rank} lacks")
        return sample

    def counts(self, epoch: int) -> np.ndarray:
        """(num_nodes,) int32: how many batches of ``epoch`` read the features of each node on this rank."""
        if hasattr(self.sampler, "counts"):
            own = [self._items_of(epoch, number)[1] for number in range(self.num_batches)]
            counts = self.sampler.counts(own, epoch)
            if counts is not None:
                return counts
        counts = np.zeros(self.graph.num_nodes, np.int32)
        for number in range(self.num_batches):
            counts[self.sample(epoch, number).inputs] += 1
        return counts

    def _items_of(self, epoch: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The items of batch ``number`` of ``epoch``, over all ranks, and those of this rank."""
        if epoch != self._epoch:
            self._epoch, self._orders = epoch, [epoch_order(items, self._seed, epoch) for items in self._items]
        batches = [batch_of(order, self._step, number) for order in self._orders]
        if self.num_parts:
            return np.concatenate(batches), np.sort(batches[self._rank])
        (batch,) = batches
        return batch, self.sampler.part(batch, self._rank, self._num_ranks)

    def usual_size(self) -> tuple[int, int]:
        """See ``Sampler.usual_size``, of a part of a whole batch."""
        num_items = min(self._step, max(map(len, self._items)))
        return self.sampler.usual_size(num_items if self.num_parts else -(-num_items // self._num_ranks))
