"""Which rank holds which rows of a matrix, which block it multiplies in which stage, and which replica computes it.

Every rank computes all of this without communication.
"""

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


def stage_source(part: int, stage: int, num_parts: int, stage_order: str) -> int:
    """The block column that block row ``part`` multiplies in ``stage``."""
    return stage if stage_order == "broadcast" else (part + stage) % num_parts


def stage_sources(num_parts: int, stage_order: str) -> np.ndarray:
    """(b, b) int64: ``stage_source`` of each block row (first index) in each stage (second)."""
    stages = np.arange(num_parts)
    return np.tile(stages, (num_parts, 1)) if stage_order == "broadcast" else (stages[:, None] + stages) % num_parts


def stage_nnz(block_nnz: np.ndarray, stage_order: str) -> np.ndarray:
    """(b, b) non-zeros of each block row (first index) in each stage (second)."""
    return np.take_along_axis(block_nnz, stage_sources(len(block_nnz), stage_order), axis=1)


def assign_stages(block_nnz: np.ndarray, replication: int) -> list[list[int]]:
    """Assign every stage to one replica, so that the replicas' stage counts differ by at most one.

    In stage j, block row i multiplies the ``block_nnz[i, j]`` non-zeros of its block. Two assignments are compared:
    runs of consecutive stages, and a greedy one that gives each stage, the heaviest first, to the least loaded replica.
    The result is the assignment whose most loaded rank multiplies fewer non-zeros.

    Args:
        block_nnz: (b, b) int64, non-zeros of each block.
        replication: number of replicas r.

    Returns:
        r ascending lists of stage ids.
    """
    num_stages = block_nnz.shape[1]
    bounds = np.arange(replication + 1) * num_stages // replication
    runs = [list(range(start, stop)) for start, stop in itertools.pairwise(bounds)]
    greedy = _least_loaded(block_nnz, replication)
    return min(runs, greedy, key=lambda shares: _heaviest(block_nnz, shares))


def rank_sums(by_stage: np.ndarray, shares: list[list[int]]) -> np.ndarray:
    """Sum a (b, stages) quantity, such as non-zeros, over the stages of each rank: (b, r)."""
    return np.stack([by_stage[:, stages].sum(axis=1) for stages in shares], axis=1)


def _least_loaded(block_nnz: np.ndarray, replication: int) -> list[list[int]]:
    num_stages = block_nnz.shape[1]
    small, num_large = divmod(num_stages, replication)
    shares: list[list[int]] = [[] for _ in range(replication)]
    load = np.zeros((block_nnz.shape[0], replication), np.int64)
    for stage in np.argsort(-block_nnz.sum(axis=0), kind="stable"):
        full_large = sum(len(stages) > small for stages in shares)
        open_shares = [
            k
            for k, stages in enumerate(shares)
            if len(stages) < small or (len(stages) == small and full_large < num_large)
        ]
        k = min(open_shares, key=lambda k: ((load[:, k] + block_nnz[:, stage]).max(), len(shares[k])))
        shares[k].append(int(stage))
        load[:, k] += block_nnz[:, stage]
    return [sorted(stages) for stages in shares]


def _heaviest(block_nnz: np.ndarray, shares: list[list[int]]) -> int:
    return int(rank_sums(block_nnz, shares).max(initial=0))
