"""What falls on the ranks of a plan, and what they receive, counted without processes: the blocks of each distributed
product; what a task that finds links draws in an epoch, and the rows of partners that travel for it; and a step of such
a task for one rank alone (``trace.py``).

Which nodes a step names is random, so the rows of partners that travel are expected numbers. Let c be how many training
pairs join owners on one rank with the partner v, f the share of all pairs that a step draws, and N the negatives that
the owners of this rank draw in the step, each any of the candidates. The rank then reads the row of v with probability

    1 - (1 - f)^c (1 - 1/candidates)^N

That a negative is none of the partners of its owner is left out: it is seldom one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fullgnn.graph.links import LinkFacts
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.schemes.directory import Directory, StepRequest
from fullgnn.schemes.exchange import RankContext
from fullgnn.schemes.options import Grid
from fullgnn.schemes.product_layout import BROADCAST, HALO, WHOLE, ProductLayout, RowDistribution, rank_sums, stage_nnz
from fullgnn.tasks import LinkTask
from fullgnn.tasks.draws import batch_sizes
from fullgnn.tasks.links import Step

NUMBERS_TO_FIND = 10
"""Integers for each id that ``Directory.find_steps`` holds at a time: its holder, row, place and others."""


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


@dataclass(frozen=True, eq=False)
class PlannedLinks:
    """The draws of an epoch. A *holder* is a slice of a block row: a rank, or the replicas that hold the same rows."""

    task: LinkTask
    replication: int
    draws: np.ndarray  # (b, m) int64, of each holder in an epoch
    rows: np.ndarray  # (b * m, b * m) float64, rows that a holder reads of another in all steps, its own included

    def of_ranks(self, by_holder: np.ndarray) -> np.ndarray:
        """(b, r), what ``by_holder`` (b * m,) says of the rows of each rank."""
        by_slice: np.ndarray = by_holder.reshape(self.draws.shape)
        return by_slice if by_slice.shape[1] > 1 else np.repeat(by_slice, self.replication, axis=1)

    def bytes_received(self, row_bytes: int) -> dict[str, np.ndarray]:
        """(b, r) int64 bytes, by collective, that each rank receives in an epoch for the rows of its partners and
        their gradients of ``row_bytes``, and for finding where they are; see ``schemes/directory.py``."""
        size = len(self.draws) * self.replication
        if size == 1:
            return {}
        wanted, own = self.of_ranks(self.rows.sum(axis=1)), np.diag(self.rows)
        fetched = self.of_ranks(self.rows.sum(axis=1) - own)  # rows of other ranks
        served = self.of_ranks(self.rows.sum(axis=0) - own)  # own rows that others read, whose gradients come back
        candidates, num_kept = self.task.links.candidates, -(-self.task.links.num_nodes // size)
        bounds = np.clip(np.arange(size + 1) * num_kept, candidates.start, candidates.stop)
        kept = np.diff(bounds).reshape(wanted.shape) / len(candidates)  # share of the candidates whose places it keeps
        asked, answers = kept * (wanted.sum() - wanted) * 8, (1 - kept) * wanted * 16
        received = {
            "exchange": fetched * row_bytes,
            "push": served * row_bytes,
            "ids": asked + answers + served * 8 + 16 * self.task.num_steps * (size - 1),
            "all_reduce": np.full(wanted.shape, 2 * (size - 1) * 8 // size),  # the largest request
        }
        return {name: np.rint(counts).astype(np.int64) for name, counts in received.items()}

    def scaled(self, factor: float) -> "PlannedLinks":
        """The same with ``factor`` times the draws."""
        return replace(self, draws=np.rint(self.draws * factor).astype(np.int64), rows=self.rows * factor)


_Pairs = tuple[np.ndarray, np.ndarray, Callable[[float], np.ndarray]]
"""How the training pairs lie on the holders of the rows: (b * m,) the draws of an epoch, (b * m,) the candidates among
the rows of each holder, and (b * m, b * m) the rows of partners of training pairs, expected in a step that draws a
share of the pairs."""


def planned_links(
    rows: RowDistribution, task: LinkTask, replication: int, prepared: PreparedGraph | None = None
) -> PlannedLinks:
    """The draws of ``task``.

    Args:
        prepared: the graph, which was prepared with its pairs; None: pairs are random, and their nodes are spread
            evenly over the rows.
    """
    facts = task.links
    draws, held, rows_of_pairs = _pairs(facts, rows, prepared)
    num_holders, num_candidates = len(draws), max(1, len(facts.candidates))
    expected = np.zeros((num_holders, num_holders))
    for size, times in zip(*np.unique(batch_sizes(facts.num_train, task.batch_size), return_counts=True)):
        share = size / max(1, facts.num_train)
        unnamed = np.exp(-draws * share * task.num_negatives / num_candidates)[:, None]  # by any negative
        expected += times * (held * (1 - unnamed) + unnamed * rows_of_pairs(share))
    by_part = np.rint(draws).astype(np.int64).reshape(-1, rows.num_slices)
    return PlannedLinks(task, replication, by_part, expected)


def _pairs(facts: LinkFacts, rows: RowDistribution, prepared: PreparedGraph | None) -> _Pairs:
    sizes = np.diff(rows.bounds, axis=1).ravel()
    if prepared is None:
        share_of, num_candidates = sizes / max(1, rows.total), len(facts.candidates)
        draws, expected = facts.num_train * share_of, num_candidates * share_of
        return draws, expected, lambda share: -np.expm1(-share * draws / num_candidates)[:, None] * expected
    num_nodes, num_holders, parts = rows.total, len(sizes), list(prepared.parts())
    holder = np.empty(num_nodes, np.int64)  # by original id
    holder[np.concatenate([part.node_id for part in parts])] = np.repeat(np.arange(num_holders), sizes)
    train = [part.pairs["train"] for part in parts]
    owner = np.concatenate([np.repeat(holder[part.node_id], np.diff(own.indptr)) for part, own in zip(parts, train)])
    keys = np.sort(owner * num_nodes + np.concatenate([own.ids for own in train]))
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    counts, (reader, partner) = np.diff(first, append=len(keys)), np.divmod(keys[first], num_nodes)
    cell = reader * num_holders + holder[partner]

    def rows_of_pairs(share: float) -> np.ndarray:
        drawn = np.bincount(cell, 1 - (1 - share) ** counts, num_holders**2)
        return drawn.reshape(num_holders, num_holders)

    held = np.bincount(holder[facts.candidates.start : facts.candidates.stop], minlength=num_holders)
    return np.bincount(owner, minlength=num_holders), held, rows_of_pairs


class MadeUpDirectory(Directory):
    """A ``Directory`` of one rank without the others, which brings the rows of ``made_up_step``: their numbers mean
    nothing, and the memory that they take is that of a run."""

    def __init__(self, context: RankContext, num_own: int):
        self._world, self._num_own = context.world, num_own
        self._num_held = [num_own if rank == context.rank else 1 for rank in range(context.world.size)]
        self._buffers = context.buffers if context.shared_memory else None


def made_up_step(links: PlannedLinks, context: RankContext) -> Step:
    """A mean step of the rank of ``context``, whose partners lie on the other ranks in equal numbers. As in a real run,
    it is a piece of the draws of an epoch."""
    holder = context.replica if links.draws.shape[1] > 1 else 0
    place, size = context.part * links.draws.shape[1] + holder, context.world.size
    num_steps, width = links.task.num_steps, 1 + links.task.num_negatives  # pairs of nodes that are scored for a draw
    num_scores, wanted = int(links.draws[context.part, holder]) * width, links.rows.sum(axis=1)

    def of_step(count: float) -> Tensor:
        numbers = torch.zeros(round(count), dtype=torch.int64, device=context.device)
        return numbers[: len(numbers) // num_steps]

    def by_rank(count: float) -> list[Tensor]:
        of_others = iter(of_step(count).tensor_split(size - 1))
        return [of_step(0) if rank == context.rank else next(of_others) for rank in range(size)]

    scored = num_scores // num_steps // width * width
    owner, partner = of_step(num_scores)[:scored], of_step(num_scores)[:scored]
    request = None
    if size > 1:
        torch.zeros(NUMBERS_TO_FIND * round(wanted[place]), dtype=torch.int64)  # until the rows of all steps are found
        held, rows_for = by_rank(wanted[place]), by_rank(links.rows[:, place].sum())
        most = max(round(wanted.max()) // num_steps, *map(len, rows_for))
        request = StepRequest(held, rows_for, [0] * size, most)
        if not any(map(len, held)):  # of a few sampled rows: there is no row that a pair could name
            owner, partner = owner[:0], partner[:0]
    return Step(owner, partner, request, max(1, links.task.links.num_train // num_steps))
