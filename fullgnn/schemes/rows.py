"""Which rank holds which rows of a matrix. Every rank computes this distribution without communication."""

import itertools
from dataclasses import dataclass

import numpy as np

from fullgnn.partition import Partition


@dataclass(frozen=True, eq=False)
class RowDistribution:
    """The distribution of the rows of a matrix (all nodes, or only those with loss) over a (b, r) mesh.

    Block row i is cut into m consecutive slices. With m = r, rank (i, k) holds slice k; with m = 1, every rank of block
    row i holds the whole block row.
    """

    bounds: np.ndarray  # (b, m + 1) int64 GLOBAL, non-decreasing: slice q of block i is bounds[i, q] .. bounds[i, q+1]

    @property
    def num_slices(self) -> int:
        return self.bounds.shape[1] - 1

    @property
    def total(self) -> int:
        return int(self.bounds[-1, -1])

    @property
    def block_sizes(self) -> np.ndarray:
        """(b,) int64, the number of rows of each block row."""
        return self.bounds[:, -1] - self.bounds[:, 0]

    def block(self, part: int) -> slice:
        """Global rows of block ``part``."""
        return slice(int(self.bounds[part, 0]), int(self.bounds[part, -1]))

    def block_size(self, part: int) -> int:
        return int(self.bounds[part, -1] - self.bounds[part, 0])

    def slices(self, part: int) -> list[slice]:
        """The slices of block ``part``, counted from its first row."""
        local = (self.bounds[part] - self.bounds[part, 0]).tolist()
        return [slice(start, stop) for start, stop in itertools.pairwise(local)]

    def own(self, part: int, replica: int) -> slice:
        """The rows that rank (part, replica) holds, counted from the first row of its block."""
        return self.slices(part)[replica if self.num_slices > 1 else 0]

    def num_own(self, part: int, replica: int) -> int:
        """The number of rows that rank (part, replica) holds."""
        held = self.own(part, replica)
        return held.stop - held.start

    def holders(self, part: int, replica: int, replication: int) -> list[tuple[int, slice]]:
        """The ranks from which replica ``replica`` of any block row fetches block ``part``, and the rows of each."""
        first = part * replication
        if self.num_slices == 1:
            return [(first + replica, self.slices(part)[0])]
        return [(first + q, rows) for q, rows in enumerate(self.slices(part))]

    def restrict(self, mask: np.ndarray) -> "RowDistribution":
        """Keep only the rows that the (num_rows,) ``mask`` selects, renumbered in order; each keeps its holder."""
        before = np.concatenate([[0], np.cumsum(mask)])
        return RowDistribution(before[self.bounds])

    def scaled(self, factor: float) -> "RowDistribution":
        """The same distribution of ``factor`` times the rows, rounded."""
        return RowDistribution(np.rint(self.bounds * factor).astype(np.int64))


def slice_rows(partition: Partition, num_slices: int) -> RowDistribution:
    """Cut every block row into ``num_slices`` slices whose sizes differ by at most one."""
    first, size = partition.bounds[:-1, None], partition.sizes[:, None]
    return RowDistribution(first + np.arange(num_slices + 1) * size // num_slices)
