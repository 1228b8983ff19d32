"""What the batches of an epoch read: drawn on the structure of a graph alone, and counted exactly."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fullgnn.graph import Graph
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches
from fullgnn.sampling.hop import Hop
from fullgnn.sampling.neighbors import NeighborSampler


class Draws:
    """The batches of sampled training.

    Args:
        train: (num_train,) int64, the training nodes, ascending.
        fanouts: from the targets outwards.
        batch_size: training nodes of a batch.
    """

    def __init__(self, graph: Graph, train: np.ndarray, fanouts: list[int], batch_size: int, seed: int):
        self.num_nodes, self.train, self.batch_size, self._seed = graph.num_nodes, train, batch_size, seed
        self.indptr, self.indices = graph.indptr.astype(np.int64), graph.indices
        self._sampler = NeighborSampler(self.indptr, self.indices, fanouts, seed=seed)

    def batches(
        self, epoch: int, train: np.ndarray | None = None, batch_size: int | None = None
    ) -> Iterator[Sequence[Hop[np.ndarray]]]:
        """The hops of each batch of ``epoch``, from the targets outwards.

        Args:
            train, batch_size: of a part of the training nodes; None: all of them.
        """
        train, size = self.train if train is None else train, batch_size or self.batch_size
        order = epoch_order(train, self._seed, epoch)
        for turn in range(num_batches(len(train), size)):
            yield self._sampler.sample(np.sort(batch_of(order, size, turn)), epoch)

    def reads(
        self, epochs: Iterable[int], train: np.ndarray | None = None, batch_size: int | None = None
    ) -> np.ndarray:
        """(num_nodes,) int64: how many batches of these epochs read the row of each node; see ``batches``."""
        counts = np.zeros(self.num_nodes, np.int64)
        for epoch in epochs:
            for hops in self.batches(epoch, train, batch_size):
                counts[hops[-1].sources] += 1
        return counts
