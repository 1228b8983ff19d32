"""What falls on the blocks of a distributed product, and what its ranks receive: counted, without processes."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fullgnn.schemes.layout import Grid
from fullgnn.schemes.product_layout import BROADCAST, HALO, WHOLE, ProductLayout, rank_sums, stage_nnz, stage_sources


class PlannedBlocks(NamedTuple):
    """Equal blocks of the adjacency that a rank holds."""

    num_blocks: int
    num_rows: int
    num_cols: int
    nnz: int  # of each


@dataclass(frozen=True, eq=False)
class PlannedLayout(ProductLayout):
    """One distributed product, and what falls on its blocks."""

    nnz: np.ndarray  # (b, b) int64 non-zeros of the blocks
    halo: np.ndarray | None  # (b, b, m) int64 as ``Halos.counts``; None: only whole blocks travel

    @property
    def rank_nnz(self) -> np.ndarray:
        """(b, r) non-zeros that each rank multiplies."""
        return rank_sums(stage_nnz(self.nnz, self.stage_order), self.stages)

    @property
    def steps(self) -> np.ndarray:
        """(r,) the number of local products of each replica: its stages, or its own rows and each of ``pieces``."""
        num_stages = np.array([len(stages) for stages in self.stages])
        if self.pieces is None:
            return num_stages
        return np.minimum(num_stages, 1) * (1 + self.pieces.num_exchanges)

    @property
    def own_nnz(self) -> np.ndarray:
        """(b, r) non-zeros that each rank multiplies with rows that it holds, if they are spread evenly."""
        found = np.zeros((self.num_parts, len(self.stages)))
        for part in range(self.num_parts):
            found[part, self.reader(part, part)[0]] = self.nnz[part, part] / self.in_rows.num_slices
        return found

    def blocks(self, part: int, replica: int) -> list[PlannedBlocks]:
        """The blocks of rank (part, replica) that have non-zeros.

        Unless rows travel packed, the last one is cut into the slices of the replicas. Where other ranks' rows arrive
        in ``pieces``, the blocks of a group of stages are one, and so are those of the rows that the rank itself holds.
        """
        stages, num_rows = self.stages[replica], self.out_rows.block_size(part)
        groups: dict[int, list[tuple[int, int]]] = {}  # columns and non-zeros
        for place, stage in enumerate(stages):
            source = self.source(part, stage)
            nnz, num_cols = int(self.nnz[part, source]), self.in_rows.block_size(source)
            if self.halo is not None and self.sends_halo(part, source):
                num_cols = int(self.halo[part, source].sum())
            group = place if self.pieces is None else self.pieces.groups[place]
            if self.pieces is not None and source == part:
                own = nnz // self.in_rows.num_slices
                groups[-1] = [(self.in_rows.num_own(part, replica), own)]
                nnz, num_cols = nnz - own, num_cols - num_cols // self.in_rows.num_slices
            groups.setdefault(group, []).append((num_cols, nnz))
        found, packed = [], self.pieces is not None and self.pieces.packed
        for group, of_group in groups.items():
            num_cols, nnz = (sum(numbers) for numbers in zip(*of_group))
            count = 1 if packed or group < max(groups) else self.out_rows.num_slices
            if nnz:
                found.append(PlannedBlocks(count, num_rows // count, num_cols, nnz // count))
        return found

    def arriving(self, grid: Grid) -> "PlannedLayout":
        """The same product, whose rows arrive as ``grid`` says."""
        again = grid.product(self.in_rows, self.out_rows, self.stages, self.halo)
        return replace(self, transports=again.transports, pieces=again.pieces)

    def scaled(self, factor: float) -> "PlannedLayout":
        """The same product with ``factor`` times the rows, and the reads in proportion; its non-zeros stay."""
        in_rows, halo = self.in_rows.scaled(factor), self.halo
        if halo is not None:
            halo = np.minimum(np.rint(halo * factor).astype(np.int64), np.diff(in_rows.bounds, axis=1))
        return replace(self, in_rows=in_rows, out_rows=self.out_rows.scaled(factor), halo=halo)

    def rows_received(self) -> dict[str, np.ndarray]:
        """Count, for each collective, the (b, r) int64 rows of X that each rank receives in one product."""
        sizes, travelling = np.diff(self.in_rows.bounds, axis=1), self.rows_read(self.halo)
        gathered = np.zeros((self.num_parts, len(self.stages)), np.int64)
        for part in range(self.num_parts):
            replica = self.reader(part, part)[0]
            own = replica % self.in_rows.num_slices
            travelling[part, part, own] = 0
            if self.gathering_replica(part) is not None:
                gathered[part, replica] = sizes[part].sum() - sizes[part, own]
        blocks = travelling.sum(axis=2)
        broadcast = blocks * (self.transports == BROADCAST)
        np.fill_diagonal(broadcast, 0)
        exchanged = blocks * ((self.transports == WHOLE) | (self.transports == HALO))
        return {
            "broadcast": self._sum_by_rank(broadcast),
            "exchange": self._sum_by_rank(exchanged),
            "gather": gathered,
        }

    def bytes_received(self, width: int, itemsize: int, wire: int) -> dict[str, np.ndarray]:
        """Count, for each collective, the (b, r) int64 bytes that each rank receives in one product.

        Args:
            width: columns of X.
            itemsize: bytes of one element of Y.
            wire: bytes of one element of X as it travels.
        """
        return self.bytes_of_rows(width * wire) | self.bytes_of_sums(width * itemsize)

    def bytes_of_rows(self, row_bytes: int) -> dict[str, np.ndarray]:
        """The part of ``bytes_received`` that are rows of X, which travel with ``row_bytes`` each."""
        return {name: rows * row_bytes for name, rows in self.rows_received().items()}

    def bytes_of_sums(self, row_bytes: int) -> dict[str, np.ndarray]:
        """The part of ``bytes_received`` that are partial sums of the replicas, see ``Halo.reduce``."""
        replication, out = len(self.stages), np.diff(self.out_rows.bounds, axis=1)
        if out.shape[1] > 1:
            return {"reduce_scatter": (replication - 1) * out * row_bytes}
        each = 2 * (replication - 1) * out * row_bytes // replication
        return {"all_reduce": np.repeat(each, replication, axis=1)}

    def bytes_of_targets(self, row_bytes: int) -> dict[str, np.ndarray]:
        """Count the (b, r) int64 bytes of ``Halo.gather_targets``, which brings the rows of the other replicas."""
        out = np.diff(self.out_rows.bounds, axis=1)
        if out.shape[1] == 1:
            return {}
        return {"gather": (out.sum(axis=1, keepdims=True) - out) * row_bytes}

    def bytes_of_maxima(self, row_bytes: int) -> dict[str, np.ndarray]:
        """Count the (b, r) int64 bytes of ``Halo.maximum``, an all-reduce over the replicas."""
        replication = len(self.stages)
        each = 2 * (replication - 1) * self.out_rows.block_sizes[:, None] * row_bytes // replication
        return {"all_reduce": np.repeat(each, replication, axis=1)}

    def bytes_of_gradients(self, wire_bytes: int, row_bytes: int) -> dict[str, np.ndarray]:
        """Count, for each collective, the (b, r) int64 bytes that each rank receives in ``Halo.push``: the gradients at
        the rows that others have read of it.

        Args:
            wire_bytes, row_bytes: of a gradient as it travels, and as it is added.
        """
        sizes, replication = np.diff(self.in_rows.bounds, axis=1), len(self.stages)
        read = self.rows_read(self.halo)
        own, readers = np.arange(self.num_parts), self._readers()
        if sizes.shape[1] > 1:
            read[own, own, readers[own, own]] = 0
            return {"push": read.sum(axis=0) * wire_bytes}
        read[own, own] = 0
        of_replicas = [(read[:, :, 0] * (readers == replica)).sum(axis=0) for replica in range(replication)]
        each = 2 * (replication - 1) * sizes * row_bytes // replication  # the gradients of the copies are added
        return {"push": np.stack(of_replicas, axis=1) * wire_bytes, "all_reduce": np.repeat(each, replication, axis=1)}

    def _readers(self) -> np.ndarray:
        """(b, b): the replica of block row i (first index) that multiplies block column j (second), see ``reader``."""
        replica_of = np.empty(self.num_parts, np.int64)
        for replica, stages in enumerate(self.stages):
            replica_of[stages] = replica
        readers = np.empty((self.num_parts, self.num_parts), np.int64)
        np.put_along_axis(readers, stage_sources(self.num_parts, self.stage_order), replica_of[None, :], axis=1)
        return readers

    def _sum_by_rank(self, blocks: np.ndarray) -> np.ndarray:
        """Sum a (b, b) quantity by block row and block column over the blocks that each rank multiplies: (b, r)."""
        by_stage = np.take_along_axis(blocks, stage_sources(self.num_parts, self.stage_order), axis=1)
        return rank_sums(by_stage, self.stages)
