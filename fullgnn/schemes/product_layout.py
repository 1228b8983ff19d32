"""The layout of Y = M X: the rows of each rank, the stages of each replica, and the transport of the rows of X.

How they do is a table of transports, which follows from what each block row reads.

Every rank computes the same table, so that no rank has to ask another one, and the planner, which runs no training,
counts the same rows (``costs/layout.py``). Block row i gets the rows of block j by one of four transports:

    OWN         block row i holds the rows: nothing moves
    BROADCAST   the owner sends the whole block along ``row``, after it has gathered the slices of its replicas
    WHOLE       every holder sends all its rows to the reader, point to point
    HALO        every holder sends the rows for which block row i has columns (the halo rows of the reader)
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fullgnn.partition import Partition
from fullgnn.schemes.pieces import Pieces

OWN, BROADCAST, WHOLE, HALO = range(4)

HALO_SHARE = 0.75
"""``exchange=auto`` sends only the rows that a block reads if they are less than this fraction of the rows of their
block. Above this fraction, packing the rows costs as much as it saves."""


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


def stage_sources(num_parts: int, stage_order: str) -> np.ndarray:
    """(b, b) int64: the block column that each block row (first index) multiplies in each stage (second)."""
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


@dataclass(frozen=True, eq=False)
class ProductLayout:
    """One distributed product on a (b, r) mesh, as every rank knows it."""

    in_rows: RowDistribution  # of X
    out_rows: RowDistribution  # of Y
    stages: list[list[int]]  # the stages of each replica, ascending
    stage_order: str  # diagonal or broadcast
    transports: np.ndarray  # (b, b) int8, entry [i, j]: how the rows of block j reach block row i
    pieces: Pieces | None  # in which exchanges the rows of other ranks arrive; None: stage by stage

    @property
    def num_parts(self) -> int:
        return len(self.transports)

    @property
    def num_steps(self) -> int:
        """Number of steps of the product.

        In step t each replica multiplies the t-th of its stages, if it has one. With ``pieces``, it multiplies its own
        rows in step 0 and those of group g in step 1 + g.
        """
        return max(map(len, self.stages)) if self.pieces is None else 1 + len(self.pieces.slices)

    @property
    def stage_sources(self) -> np.ndarray:
        """(b, b) int64: see the function ``stage_sources``."""
        return stage_sources(self.num_parts, self.stage_order)

    def source(self, part: int, stage: int) -> int:
        """The block column that block row ``part`` multiplies in ``stage``."""
        return stage if self.stage_order == "broadcast" else (part + stage) % self.num_parts

    def sources(self, part: int, replica: int) -> list[int]:
        """The block columns that rank (part, replica) multiplies, in the order of its stages."""
        return [self.source(part, stage) for stage in self.stages[replica]]

    def reader(self, part: int, source: int) -> tuple[int, int]:
        """The replica of block row ``part`` that multiplies block column ``source``, and the step in which it does."""
        stage = source if self.stage_order == "broadcast" else (source - part) % self.num_parts
        replica, stages = next((replica, own) for replica, own in enumerate(self.stages) if stage in own)
        place = stages.index(stage)
        return replica, place if self.pieces is None else 1 + self.pieces.groups[place]

    def gathering_replica(self, part: int) -> int | None:
        """The replica that gathers the slices of block ``part`` and broadcasts it; None if no gather is necessary."""
        if self.in_rows.num_slices == 1 or self.transports[part, part] != BROADCAST:
            return None
        return self.reader(part, part)[0]

    def rows_by_place(self, halo: np.ndarray | None) -> np.ndarray:
        """(2 b r, num_places) int64: for the stages at each place in the lists of the replicas, the rows that each rank
        receives from others, then those that each rank sends.

        Args:
            halo: ``Halos.counts``; None if no transport is HALO.
        """
        num_parts, replication, read = self.num_parts, len(self.stages), self.rows_read(halo)
        num_slices, parts, by_stage = self.in_rows.num_slices, np.arange(num_parts), self.stage_sources
        received, sent = np.zeros((2, num_parts, replication, max(map(len, self.stages))), np.int64)
        for replica, stages in enumerate(self.stages):
            for place, stage in enumerate(stages):
                sources = by_stage[:, stage]
                rows = read[parts, sources]  # (b, m)
                rows[sources == parts, replica if num_slices > 1 else 0] = 0  # which the rank itself holds
                received[parts, replica, place] += rows.sum(axis=1)
                holders = slice(None) if num_slices > 1 else slice(replica, replica + 1)
                sent[sources, holders, place] += rows
        return np.concatenate([received, sent]).reshape(2 * num_parts * replication, -1)

    def rows_read(self, halo: np.ndarray | None) -> np.ndarray:
        """(b, b, m): entry [i, j, q] counts the rows of slice q of block j that block row i reads."""
        sizes = np.diff(self.in_rows.bounds, axis=1)  # (b, m)
        read = np.broadcast_to(sizes, (self.num_parts, *sizes.shape)).copy()
        if halo is not None:
            chosen = self.transports == HALO
            read[chosen] = halo[chosen]
        return read


@dataclass(frozen=True, eq=False)
class Halos:
    """The rows of X that each block row of a matrix reads: those for which it has columns.

    The rows of one block row at a time are in memory.
    """

    rows: Callable[[int], np.ndarray]  # of a block row, (num_read,) int32, GLOBAL and ascending
    in_rows: RowDistribution

    @cached_property
    def counts(self) -> np.ndarray:
        """(b, b, m) int64: entry [i, j, q] counts the rows of slice q of block j that block row i reads."""
        bounds = self.in_rows.bounds
        return np.stack([np.diff(np.searchsorted(self.rows(part), bounds), axis=1) for part in range(len(bounds))])

    def of_block(self, part: int, source: int) -> np.ndarray:
        """The rows that block row ``part`` reads of block ``source``, int64, counted from its first row."""
        block = self.in_rows.block(source)
        return self._between(part, block.start, block.stop)

    def boundary(self, part: int, own: slice) -> list[np.ndarray]:
        """For each block row, the boundary rows that it reads from slice ``own`` of block ``part``.

        The rows are counted from the first row of the slice.
        """
        start = self.in_rows.block(part).start + own.start
        stop = start + own.stop - own.start
        return [self._between(reader, start, stop) for reader in range(len(self.in_rows.bounds))]

    def _between(self, part: int, start: int, stop: int) -> np.ndarray:
        """The rows from ``start`` to ``stop`` that block row ``part`` reads, int64, counted from ``start``."""
        rows = self.rows(part)
        first, last = np.searchsorted(rows, (start, stop))
        return rows[first:last].astype(np.int64) - start

    def restrict(self, mask: np.ndarray, in_rows: RowDistribution) -> "Halos":
        """Keep only the rows of X that the (num_rows,) ``mask`` selects, renumbered to match ``in_rows``."""
        number = np.cumsum(mask, dtype=np.int32) - 1

        def restricted(part: int) -> np.ndarray:
            rows = self.rows(part)
            return number[rows[mask[rows]]]

        return Halos(restricted, in_rows)

    def with_own_rows(self, mask: np.ndarray | None = None) -> "Halos":
        """Let each block row also read its own rows, or those of them that the (num_rows,) ``mask`` selects."""

        def joined(part: int) -> np.ndarray:
            rows, block = self.rows(part), self.in_rows.block(part)
            first, stop = np.searchsorted(rows, (block.start, block.stop))
            has = np.ones(block.stop - block.start, bool) if mask is None else mask[block].copy()
            has[rows[first:stop] - block.start] = True
            own = np.flatnonzero(has).astype(np.int32) + np.int32(block.start)
            return np.concatenate([rows[:first], own, rows[stop:]])

        return Halos(joined, self.in_rows)


def choose_transports(
    rows: RowDistribution, counts: np.ndarray | None, stage_order: str, exchange: str, packed: bool = False
) -> np.ndarray:
    """Choose how the rows of block j reach block row i: (b, b) int8.

    In the stage order ``broadcast`` all readers of a block get it by the same transport: one broadcast, or point to
    point.

    Args:
        rows: distribution of the rows of X.
        counts: ``Halos.counts``; None if only whole blocks travel.
        exchange: ``broadcast``, ``needed_rows`` or ``auto``.
        packed: whether rows travel side by side; then no block travels whole.
    """
    sizes = rows.block_sizes
    num_parts, broadcast = len(sizes), stage_order == "broadcast"
    if exchange == "broadcast" or counts is None:
        sparse = np.zeros((num_parts, num_parts), bool)
    elif exchange == "needed_rows" or packed:
        sparse = np.ones((num_parts, num_parts), bool)
    else:
        halo = counts.sum(axis=2)
        if broadcast:
            halo_of_others = halo.sum(axis=0) - np.diag(halo)
            sparse = np.tile(halo_of_others < HALO_SHARE * sizes * (num_parts - 1), (num_parts, 1))
        else:
            sparse = halo < HALO_SHARE * sizes
    transports = np.where(sparse, HALO, BROADCAST if broadcast else WHOLE).astype(np.int8)
    if rows.num_slices == 1:
        diagonal = np.eye(num_parts, dtype=bool)
        transports[diagonal & (transports != BROADCAST)] = OWN
    return transports
