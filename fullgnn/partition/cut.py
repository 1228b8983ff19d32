"""The result of a partitioner: which nodes form which part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fullgnn.errors import PartitionError
from fullgnn.partition.partition import Partition


@dataclass(frozen=True, eq=False)
class Cut:
    """A numbering in which the parts are consecutive; inside a part the nodes keep their old order."""

    perm: np.ndarray  # (num_nodes,) int64, GLOBAL: new node i is old node perm[i]
    partition: Partition  # parts of the new nodes
    used: str  # name of the partitioner that ran; after a fallback it differs from the configured one

    def __post_init__(self) -> None:
        if not is_permutation(self.perm, self.partition.num_nodes):
            raise PartitionError(
                f"Partitioner {self.used} did not return a permutation of its {self.partition.num_nodes} nodes"
                ": return each of 0..n-1 once, as integers."
            )
        descents = np.flatnonzero(self.perm[1:] < self.perm[:-1]) + 1
        if not np.isin(descents, self.partition.bounds).all():
            raise PartitionError(
                f"Partitioner {self.used} did not keep the order of the nodes in each part: sort them."
            )

    @classmethod
    def consecutive(cls, partition: Partition, used: str) -> Cut:
        """The cut into parts that are consecutive already: the nodes keep their numbers."""
        return cls(np.arange(partition.num_nodes, dtype=np.int64), partition, used)

    @classmethod
    def from_part_id(cls, part_id: np.ndarray, num_parts: int, used: str) -> Cut:
        """The cut that puts node ``i`` into part ``part_id[i]``, (num_nodes,) integers from 0 to ``num_parts - 1``."""
        perm = np.argsort(part_id, kind="stable").astype(np.int64, copy=False)
        sizes = np.bincount(part_id, minlength=num_parts)
        return cls(perm, Partition(np.concatenate([[0], np.cumsum(sizes)])), used)


def is_permutation(order: np.ndarray, size: int) -> bool:
    """Whether ``order`` holds each of ``0 .. size - 1`` once."""
    if order.shape != (size,):
        return False
    if size == 0:  # numpy gives an empty list the dtype float64
        return True
    if not np.issubdtype(order.dtype, np.integer):
        return False
    seen = np.zeros(size, dtype=bool)
    seen[order[(order >= 0) & (order < size)]] = True
    return bool(seen.all())  # ``size`` entries and ``size`` distinct values: each occurs exactly once
