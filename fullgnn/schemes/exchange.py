"""Bringing the rows of H that a rank multiplies to it, one stage after the other.

Three ways, chosen for each stage when the blocks are known:

    own         the rows are here: nothing moves
    broadcast   the owner sends the whole block along ``row``, after it has gathered the slices of its replicas
    rows        every holder sends, to each reader by itself, the rows that this reader's block has columns for
                (or all of them), and the reader's block counts its columns by what arrives

``rows`` is the halo exchange of SAR (Mostafa, MLSys'22) and of sparsity-aware CAGNET (Mukhodopadhyay et al., 2024). A
rank never receives what it holds. The next stage's rows travel while this one multiplies: two buffers take turns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fullgnn.dist import Axis, Pending, all_gather_objects, exchange_integers
from fullgnn.schemes.layout import Rows, stage_source

NEEDED_SHARE = 0.75
"""``auto`` sends only the needed rows below this share of all rows: above, packing costs what it saves."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where this rank stands on the mesh, whom it talks to, and how."""

    part: int
    replica: int
    num_parts: int
    replication: int
    row_axis: Axis
    replica_axis: Axis
    world_axis: Axis
    device: torch.device
    stage_order: str  # diagonal or broadcast
    exchange: str  # auto, broadcast or needed_rows
    wire_dtype: torch.dtype | None  # in which rows travel; None: as they are

    @property
    def rank(self) -> int:
        return self.part * self.replication + self.replica

    def source(self, stage: int) -> int:
        return stage_source(self.part, stage, self.num_parts, self.stage_order)


@dataclass(frozen=True, eq=False)
class _Send:
    rank: int
    index: Tensor | None  # (num_sent,) int64, which of this rank's rows; None: all


@dataclass(eq=False)
class StagePlan:
    """How the rows of one stage reach this rank."""

    source: int
    way: str  # own, broadcast or rows
    columns: np.ndarray | None  # (num_rows,) ascending rows of block ``source`` that arrive; None: all
    num_rows: int
    receives: list[tuple[int, slice]] = field(default_factory=list)  # rank, rows of the buffer
    own: tuple[Tensor | None, slice] | None = None  # of the rows that are here: which, and where they go


class Exchange:
    """The plan of one operator, and its execution. Building it is collective over the world.

    Args:
        needed: for each of this rank's stages, the (num_needed,) ascending rows of the source block that it reads.
        all_stages: the stages of every replica, in order.
        rows: how the rows of H lie on the ranks.
    """

    def __init__(self, place: Place, needed: list[np.ndarray], all_stages: list[list[int]], rows: Rows):
        self.place, self.rows = place, rows
        self.num_steps = max(map(len, all_stages))
        self.plans = self._choose(needed, all_stages[place.replica])
        self._sends = self._agree()
        self._root = self._gathering_replica(all_stages)
        self._buffers: dict[tuple[int, torch.dtype], Tensor] = {}

    def arrivals(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield, for each stage in turn, its number in this rank's list and its (num_rows, F) rows of H.

        Args:
            x: (num_local_rows, F), contiguous, this rank's rows of H. It is read until the last stage was yielded.
        """
        wire = x if self.place.wire_dtype is None else x.to(self.place.wire_dtype)
        buffers = self._receive_buffers(wire)
        sent: list[Pending] = []
        whole = self._gather(wire, sent)
        in_flight: list[list[Pending]] = []
        for step in range(self.num_steps + 1):
            if step < self.num_steps:
                in_flight.append(self._start(step, wire, whole, buffers[step % 2], sent))
            if 0 < step <= len(self.plans):
                plan = self.plans[step - 1]
                for pending in in_flight[step - 1]:
                    pending.wait()
                if plan.way == "own":
                    yield step - 1, x
                elif plan.way == "broadcast" and plan.source == self.place.part:
                    yield step - 1, x if self.rows.num_slices == 1 else whole.to(x.dtype)
                else:
                    yield step - 1, buffers[(step - 1) % 2, : plan.num_rows].to(x.dtype)
        for pending in sent:
            pending.wait()

    def tensors(self) -> list[Tensor]:
        indices = [send.index for sends in self._sends for send in sends if send.index is not None]
        return [*indices, *self._buffers.values()]

    # ---- the plan ------------------------------------------------------------------------------------------------

    def _choose(self, needed: list[np.ndarray], stages: list[int]) -> list[StagePlan]:
        place, exchange, split = self.place, self.place.exchange, self.rows.num_slices > 1
        sources = [place.source(stage) for stage in stages]
        counts: dict[int, int] = {}  # rows that the others read of each source, over this replica's ranks
        if exchange == "auto" and place.stage_order == "broadcast":
            mine = (place.part, place.replica, list(zip(sources, map(len, needed))))
            for part, replica, pairs in all_gather_objects(mine):
                for source, count in pairs if replica == place.replica else ():
                    counts[source] = counts.get(source, 0) + (count if part != source else 0)
        plans = []
        for source, columns in zip(sources, needed):
            size = self.rows.block_size(source)
            if counts:
                sparse = counts[source] < NEEDED_SHARE * size * (place.num_parts - 1)
            else:
                sparse = exchange == "needed_rows" or (exchange == "auto" and len(columns) < NEEDED_SHARE * size)
            if place.stage_order == "broadcast" and not sparse:
                plans.append(StagePlan(source, "broadcast", None, size))
            elif source == place.part and not split:
                plans.append(StagePlan(source, "own", None, size))
            elif sparse:
                plans.append(StagePlan(source, "rows", columns, len(columns)))
            else:
                plans.append(StagePlan(source, "rows", None, size))
        return plans

    def _agree(self) -> list[list[_Send]]:
        """Tell every holder which of its rows to send here in which step; returns what to send in each step."""
        place = self.place
        requests: list[list[np.ndarray]] = [[] for _ in range(place.num_parts * place.replication)]
        for step, plan in enumerate(self.plans):
            if plan.way != "rows":
                continue
            for rank, held in self.rows.holders(plan.source, place.replica, place.replication):
                index, where = None, held
                if plan.columns is not None:
                    first, stop = np.searchsorted(plan.columns, [held.start, held.stop]).tolist()
                    index, where = plan.columns[first:stop] - held.start, slice(first, stop)
                if rank == place.rank:
                    plan.own = (None if index is None else torch.from_numpy(index).to(place.device), where)
                elif where.stop > where.start:
                    plan.receives.append((rank, where))
                    count = -1 if index is None else len(index)
                    requests[rank].append(np.array([step, count]))
                    requests[rank].append(np.empty(0, np.int64) if index is None else index)
        received = exchange_integers([np.concatenate([*parts, np.empty(0, np.int64)]) for parts in requests])
        sends: list[list[_Send]] = [[] for _ in range(self.num_steps)]
        for rank, message in enumerate(received):
            at = 0
            while at < len(message):
                step, count = message[at : at + 2].tolist()
                at += 2
                if count < 0:
                    sends[step].append(_Send(rank, None))
                else:
                    sends[step].append(_Send(rank, torch.from_numpy(message[at : at + count].copy()).to(place.device)))
                    at += count
        return sends

    def _gathering_replica(self, all_stages: list[list[int]]) -> int | None:
        """The replica that broadcasts this block row, where it must first gather the slices of the others."""
        if self.rows.num_slices == 1:
            return None
        place, ways = self.place, all_gather_objects([plan.way for plan in self.plans])
        if place.stage_order != "broadcast":
            return None
        replica = next(replica for replica, stages in enumerate(all_stages) if place.part in stages)
        step = all_stages[replica].index(place.part)
        return replica if ways[place.part * place.replication + replica][step] == "broadcast" else None

    # ---- its execution -------------------------------------------------------------------------------------------

    def _start(self, step: int, wire: Tensor, whole: Tensor, buffer: Tensor, sent: list[Pending]) -> list[Pending]:
        sends = [
            (wire if send.index is None else wire.index_select(0, send.index), send.rank) for send in self._sends[step]
        ]
        receives: list[tuple[Tensor, int]] = []
        arriving: list[Pending] = []
        if step < len(self.plans):
            plan = self.plans[step]
            receives = [(buffer[where], rank) for rank, where in plan.receives]
            if plan.way == "broadcast":
                here = plan.source == self.place.part
                tensor = whole if here else buffer[: plan.num_rows]
                arriving.append(self.place.row_axis.broadcast(tensor, plan.source))
            if plan.own is not None:
                index, where = plan.own
                buffer[where].copy_(wire if index is None else wire.index_select(0, index))
        started, received = self.place.world_axis.exchange(sends, receives)
        sent.extend(started)
        return [*arriving, *received]

    def _gather(self, wire: Tensor, sent: list[Pending]) -> Tensor:
        """The whole block row where this rank broadcasts it, made of the replicas' slices; elsewhere ``wire``."""
        root, part = self._root, self.place.part
        if root is None:
            return wire
        slices = self.rows.slices(part)
        if root != self.place.replica:
            started, _ = self.place.replica_axis.exchange([(wire, root)], [], "gather")
            sent.extend(started)
            return wire
        whole = wire.new_empty(self.rows.block_size(part), wire.shape[1])
        whole[slices[root]] = wire
        others = [(whole[rows], replica) for replica, rows in enumerate(slices) if replica != root]
        for pending in self.place.replica_axis.exchange([], others, "gather")[1]:
            pending.wait()
        return whole

    def _receive_buffers(self, wire: Tensor) -> Tensor:
        """(2, most rows that arrive in a stage, F): one stage arrives while the other is read."""
        key = (wire.shape[1], wire.dtype)
        if key not in self._buffers:
            received = [plan.num_rows for plan in self.plans if plan.way != "own"]
            self._buffers[key] = wire.new_empty(2, max(received, default=0), wire.shape[1])
        return self._buffers[key]
