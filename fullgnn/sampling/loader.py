"""Makes the batches of an epoch on one rank: sampled, with the features of their inputs, as blocks on the device.

host      batch_of, part_of    the rank's training nodes of the batch
          sampler.sample       their hops
          features[sources]    the rows of the outermost hop's sources
device    BlockMaker.blocks    one ``Block`` for each layer
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fullgnn.distributed import World
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches, part_of
from fullgnn.sampling.blocks import BlockMaker
from fullgnn.sampling.host_graph import HostGraph, read_only_tensor
from fullgnn.sampling.neighbors import Hop
from fullgnn.sampling.samplers import Sampler
from fullgnn.schemes.block import Block
from fullgnn.tasks.task import NodeTask
from fullgnn.telemetry.meter import Meter


@dataclass(frozen=True, eq=False)
class Sample:
    """What one rank reads of a batch, on the host."""

    targets: np.ndarray  # (num_targets,) int64, this rank's training nodes, ascending
    hops: list[Hop]  # from the targets outwards
    total: float  # of the whole batch, over all ranks; see ``NodeTask.total``

    @property
    def inputs(self) -> np.ndarray:
        """The nodes whose features are read, ascending."""
        return self.hops[-1].sources if self.hops else self.targets

    @property
    def num_edges(self) -> int:
        """The drawn edges of all hops."""
        return sum(hop.num_edges for hop in self.hops)


@dataclass(frozen=True, eq=False)
class Minibatch:
    """What the model reads of a batch on one rank, on its device."""

    x: Tensor  # (num_inputs, num_features)
    blocks: list[Block]  # the first layer's first
    targets: Tensor  # of the rank's training nodes, see ``Task.targets``
    total: float  # see ``Sample``

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        return [self.x, self.targets, *(tensor for block in self.blocks for tensor in block.tensors())]


class Loader:
    """The batches of one rank.

    Args:
        task: tells the normaliser of a batch.
        batch_size: training nodes of a batch, over all ranks.
    """

    def __init__(
        self,
        world: World,
        graph: HostGraph,
        sampler: Sampler,
        maker: BlockMaker,
        task: NodeTask,
        batch_size: int,
        seed: int,
        meter: Meter,
    ):
        self._world, self._graph, self._sampler, self._maker, self._task = world, graph, sampler, maker, task
        self._batch_size, self._seed, self._meter = batch_size, seed, meter
        self._features = read_only_tensor(graph.features)
        self._targets = task.targets(read_only_tensor(graph.labels))
        self.device, self.num_batches = world.device, num_batches(len(graph.train), batch_size)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Minibatch]:
        """The batches of ``epoch``, from the one with the number ``first`` on."""
        order = epoch_order(self._graph.train, self._seed, epoch)
        for number in range(first, self.num_batches):
            with self._meter.clock("sample"):
                sample = self.sample(order, epoch, number)
            self._meter.count("sampled_edges", sample.num_edges)
            self._meter.count("input_rows", len(sample.inputs))
            with self._meter.clock("gather"):
                x = self._features.index_select(0, torch.from_numpy(sample.inputs))
            with self._meter.clock("blocks"):
                batch = self._load(sample, x)
            yield batch

    def sample(self, order: np.ndarray, epoch: int, number: int) -> Sample:
        """Draw what this rank reads of batch ``number``."""
        batch = batch_of(order, self._batch_size, number)
        own = part_of(batch, self._world.rank, self._world.size)
        total = self._task.total(self._targets[torch.from_numpy(batch)])
        return Sample(own, self._sampler.sample(own, epoch), total)

    def _load(self, sample: Sample, x: Tensor) -> Minibatch:
        blocks, device = self._maker.blocks(sample.hops, sample.targets), self._world.device
        targets = self._targets[torch.from_numpy(sample.targets)].to(device)
        return Minibatch(x.to(device), blocks, targets, sample.total)
