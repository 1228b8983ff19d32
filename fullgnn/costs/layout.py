"""What falls on the blocks of a distributed product, and what its ranks receive: counted, without processes."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from fullgnn.schemes.options import Grid
from fullgnn.schemes.product_layout import BROADCAST, HALO, WHOLE, ProductLayout, rank_sums, stage_nnz


class PlannedBlocks(NamedTuple):
    """Equal blocks of the adjacency that a rank holds."""

    num_blocks: int
    num_rows: int
    num_cols: int
    nnz: int  # of each


MoveKind = Literal["fetch", "push", "targets", "sum", "maximum", "copies", "all", "gathered"]
"""``fetch``, ``push``, ``targets`` (``Halo.gather_targets``), ``sum`` (``Halo.reduce``) and ``maximum`` move rows;
``copies`` (``Halo.sum_partial``), ``all`` (``Block.sum_over_rows``) and ``gathered`` (``Block.gather_partial``) are
whole tensors."""


class Move(NamedTuple):
    """Rows on their way between ranks, or a tensor that ranks add up or gather."""

    kind: MoveKind
    row_bytes: int  # of the tensor, if the move is one of a whole tensor
    wire_bytes: int  # of a row as it travels


@dataclass(frozen=True, eq=False)
class PlannedLayout(ProductLayout):
    """One distributed product, and what falls on its blocks."""

    nnz: np.ndarray  # (b, b) int64 non-zeros of the blocks
    halo: np.ndarray | None  # (b, b, m) int64 as ``Halos.counts``; None: only whole blocks travel

    @property
    def mesh(self) -> tuple[int, int]:
        """Block rows and replicas, (b, r)."""
        return self.num_parts, len(self.stages)

    @property
    def rank_nnz(self) -> np.ndarray:
        """(b, r) non-zeros that each rank multiplies."""
        return self._sum_by_rank(self.nnz)

    @property
    def steps(self) -> np.ndarray:
        """(r,) the number of local products of each replica: its stages, or its own rows and each of ``pieces``."""
        num_stages = np.array([len(stages) for stages in self.stages])
        return num_stages if self.pieces is None else np.minimum(num_stages, 1) * (1 + self.pieces.num_exchanges)

    @property
    def own_nnz(self) -> np.ndarray:
        """(b, r) non-zeros that each rank multiplies with rows that it holds, if they are spread evenly."""
        own_nnz, parts = np.zeros(self.mesh), np.arange(self.num_parts)
        own_nnz[parts, np.diag(self._readers())] = np.diag(self.nnz) / self.in_rows.num_slices
        return own_nnz

    def blocks(self, part: int, replica: int) -> list[PlannedBlocks]:
        """The blocks of rank (part, replica) that have non-zeros.

        Unless rows travel packed, the last one is cut into the slices of the replicas. Where other ranks' rows arrive
        in ``pieces``, the blocks of a group of stages are one, and so are those of the rows that the rank itself holds.
        """
        num_rows, read = self.out_rows.block_size(part), self.rows_read(self.halo)[part].sum(axis=1)
        groups: dict[int, list[tuple[int, int]]] = {}  # columns and non-zeros
        for place, source in enumerate(self.sources(part, replica)):
            nnz, num_cols = int(self.nnz[part, source]), int(read[source])
            group = place if self.pieces is None else self.pieces.groups[place]
            if self.pieces is not None and source == part:
                own = nnz // self.in_rows.num_slices
                groups[-1] = [(self.in_rows.num_own(part, replica), own)]
                nnz, num_cols = nnz - own, num_cols - num_cols // self.in_rows.num_slices
            groups.setdefault(group, []).append((num_cols, nnz))
        blocks, packed = [], self.pieces is not None and self.pieces.packed
        for group, of_group in groups.items():
            num_cols, nnz = (sum(numbers) for numbers in zip(*of_group))
            count = 1 if packed or group < max(groups) else self.out_rows.num_slices
            if nnz:
                blocks.append(PlannedBlocks(count, num_rows // count, num_cols, nnz // count))
        return blocks

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
        gathered, parts, readers = np.zeros(self.mesh, np.int64), np.arange(self.num_parts), np.diag(self._readers())
        own = readers % self.in_rows.num_slices
        travelling[parts, parts, own] = 0
        of_others = sizes.sum(axis=1) - sizes[parts, own]
        gathered[parts, readers] = of_others * (np.diag(self.transports) == BROADCAST)  # to be broadcast
        blocks = travelling.sum(axis=2)
        broadcast = blocks * (self.transports == BROADCAST)
        np.fill_diagonal(broadcast, 0)
        exchanged = blocks * ((self.transports == WHOLE) | (self.transports == HALO))
        return {"broadcast": self._sum_by_rank(broadcast), "exchange": self._sum_by_rank(exchanged), "gather": gathered}

    def bytes_received(self, move: Move) -> dict[str, np.ndarray]:
        """Count, for each collective, the (b, r) int64 bytes that each rank receives in a ``move``, as the meter counts
        them."""
        out, (num_parts, replication) = np.diff(self.out_rows.bounds, axis=1), self.mesh
        match move.kind:
            case "fetch":
                return {name: rows * move.wire_bytes for name, rows in self.rows_received().items()}
            case "push":
                return self._bytes_of_gradients(move)
            case "targets":
                is_split = out.shape[1] > 1
                return {"gather": (out.sum(axis=1, keepdims=True) - out) * move.row_bytes} if is_split else {}
            case "sum" if out.shape[1] > 1:
                return {"reduce_scatter": (replication - 1) * out * move.row_bytes}
            case "sum" | "maximum":
                return self._all_reduced(self.out_rows.block_sizes[:, None] * move.row_bytes, replication)
            case "copies":
                return self._all_reduced(move.row_bytes if out.shape[1] == 1 else 0, replication)
            case "all":
                return self._all_reduced(move.row_bytes, num_parts * replication)
            case _:
                return {"gather": np.full(self.mesh, (num_parts * replication - 1) * move.row_bytes)}

    def _bytes_of_gradients(self, move: Move) -> dict[str, np.ndarray]:
        """``bytes_received`` of the gradients at the rows that others have read of each rank."""
        sizes, read = np.diff(self.in_rows.bounds, axis=1), self.rows_read(self.halo)
        own, readers = np.arange(self.num_parts), self._readers()
        if sizes.shape[1] > 1:
            read[own, own, readers[own, own]] = 0
            return {"push": read.sum(axis=0) * move.wire_bytes}
        read[own, own] = 0
        of_replicas = [(read[:, :, 0] * (readers == replica)).sum(axis=0) for replica in range(len(self.stages))]
        of_copies = self._all_reduced(sizes * move.row_bytes, len(self.stages))  # gradients of the copies are added
        return {"push": np.stack(of_replicas, axis=1) * move.wire_bytes} | of_copies

    def _all_reduced(self, num_bytes: np.ndarray | int, num_ranks: int) -> dict[str, np.ndarray]:
        """The bytes of an all-reduce of ``num_bytes``, (b, 1) or as many for each, over ``num_ranks``."""
        return {"all_reduce": np.broadcast_to(2 * (num_ranks - 1) * num_bytes // num_ranks, self.mesh)}

    def _readers(self) -> np.ndarray:
        """(b, b): the replica of block row i (first index) that multiplies block column j (second), see ``reader``."""
        replica_of = np.empty(self.num_parts, np.int64)
        for replica, stages in enumerate(self.stages):
            replica_of[stages] = replica
        readers = np.empty((self.num_parts, self.num_parts), np.int64)
        np.put_along_axis(readers, self.stage_sources, replica_of[None, :], axis=1)
        return readers

    def _sum_by_rank(self, blocks: np.ndarray) -> np.ndarray:
        """Sum a (b, b) quantity by block row and block column over the blocks that each rank multiplies: (b, r)."""
        return rank_sums(stage_nnz(blocks, self.stage_order), self.stages)
