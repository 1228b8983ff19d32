"""Bringing the rows of H that a rank multiplies to it, one stage after the other.

Three ways, chosen for each stage when the blocks are known:

    own         the rows are here: nothing moves
    broadcast   the owner sends the whole block along ``row``, after it has gathered the slices of its replicas
    rows        every holder sends, to each reader by itself, the rows that this reader's block has columns for
                (or all of them), and the reader's block counts its columns by what arrives

``rows`` is the halo exchange of SAR (Mostafa, MLSys'22) and of sparsity-aware CAGNET (Mukhodopadhyay et al., 2024). A
rank never receives what it holds. The next stage's rows travel while this one multiplies: two buffers take turns. The
ranks of one machine without GPUs need not send at all: with ``shared_memory`` they read each other's rows in place.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fullgnn.dist import Axis, Pending, SharedSlots, all_gather_objects, exchange_integers
from fullgnn.lines import as_rows, empty_lines
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
    shared_memory: bool  # whether the ranks may read each other's rows in place
    timeout_s: float

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
    parts: list["_Part"] = field(default_factory=list)  # where they are, if the way is ``rows``


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows of one stage that lie on one rank."""

    rank: int
    index: Tensor | None  # (num,) int64, which of the rank's rows; None: all
    where: slice  # of the rows that arrive


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
        ways = all_gather_objects([plan.way for plan in self.plans])
        self._root = self._gathering_replica(all_stages, ways)
        own = all(plan.way == "own" for plan in self.plans)
        self._alone = own and not any(self._sends) and self._root is None
        broadcasts = self._root is not None or any(plan.way == "broadcast" for plan in self.plans)
        self._sends_whole = broadcasts or any(send.index is None for sends in self._sends for send in sends)
        self._in_place = place.shared_memory and not any("broadcast" in of_rank for of_rank in ways)
        self._buffers: dict[tuple[int, torch.dtype], Tensor] = {}
        self._slots: dict[tuple[int, torch.dtype], SharedSlots] = {}

    def arrivals(self, x: Tensor, scale: Tensor | None) -> Iterator[tuple[int, Tensor]]:
        """Yield, for each stage in turn, its number in this rank's list and its (num_rows, F) rows of H.

        Args:
            x: (num_local_rows, F), this rank's rows of H, before ``scale``.
            scale: (num_local_rows,) factors of the rows; None: all 1.
        """
        if self._in_place:
            yield from self._read(x, scale)
        elif self._alone:
            yield from enumerate([self._own(x, scale)] * len(self.plans))
        else:
            yield from self._receive(self._own(x, scale))

    def _own(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """``x`` after ``scale``, in rows that begin a line each if it is made here; whole blocks leave as they lie."""
        if scale is None:
            return x.contiguous() if self._sends_whole else as_rows(x)
        lies = x.new_empty(x.shape) if self._sends_whole else empty_lines(len(x), x.shape[1], like=x)
        return torch.mul(x, scale[:, None], out=lies)

    def _read(self, x: Tensor, scale: Tensor | None) -> Iterator[tuple[int, Tensor]]:
        """``arrivals`` in shared memory: own rows go there, and the others' are read where they are."""
        place, meter = self.place, self.place.world_axis.meter
        slots = self._shared_slots(x.shape[1], place.wire_dtype or x.dtype)
        with meter.phase("comm"):
            wire = slots.begin(self._readers)
        if scale is None:
            wire.copy_(x)
        else:
            torch.mul(x, scale[:, None], out=wire)
        slots.publish()
        for step, plan in enumerate(self.plans):
            if plan.way == "own":
                exact = wire.dtype == x.dtype
                yield step, wire if exact else x if scale is None else x * scale[:, None]
                continue
            held = {}
            for part in plan.parts:
                if part.rank == place.rank:
                    held[part.rank] = wire
                else:
                    with meter.phase("comm"):
                        held[part.rank] = slots.read(part.rank)
                    meter.received("exchange", (part.where.stop - part.where.start) * wire.shape[1] * wire.itemsize)
            if len(plan.parts) == 1 and plan.columns is None:
                yield step, held[plan.parts[0].rank].to(x.dtype)
                continue
            rows = self._receive_buffers(wire)[0, : plan.num_rows]
            for part in plan.parts:
                if part.index is None:
                    rows[part.where] = held[part.rank]
                else:
                    torch.index_select(held[part.rank], 0, part.index, out=rows[part.where])
            yield step, rows.to(x.dtype)
        slots.end()

    def _receive(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """``arrivals`` by messages; ``x`` is read until the last stage was yielded."""
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

    def release(self) -> None:
        """Free what was made for the widths so far; called on every rank, between products."""
        self._buffers.clear()
        self._slots.clear()

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        sent = [send.index for sends in self._sends for send in sends]
        read = [part.index for plan in self.plans for part in plan.parts]
        slots = [slot for slots in self._slots.values() for slot in slots.own]
        return [*(index for index in (*sent, *read) if index is not None), *self._buffers.values(), *slots]

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
                if where.stop == where.start:
                    continue
                plan.parts.append(
                    _Part(rank, None if index is None else torch.from_numpy(index).to(place.device), where)
                )
                if rank != place.rank:
                    requests[rank].append(np.array([step, -1 if index is None else len(index)]))
                    requests[rank].append(np.empty(0, np.int64) if index is None else index)
        received = exchange_integers([np.concatenate([*parts, np.empty(0, np.int64)]) for parts in requests])
        self._readers = [rank for rank, message in enumerate(received) if len(message)]
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

    def _gathering_replica(self, all_stages: list[list[int]], ways: list[list[str]]) -> int | None:
        """The replica that broadcasts this block row, where it must first gather the slices of the others."""
        place = self.place
        if self.rows.num_slices == 1 or place.stage_order != "broadcast":
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
            receives = [(buffer[part.where], part.rank) for part in plan.parts if part.rank != self.place.rank]
            if plan.way == "broadcast":
                here = plan.source == self.place.part
                tensor = whole if here else buffer[: plan.num_rows]
                arriving.append(self.place.row_axis.broadcast(tensor, plan.source))
            for part in plan.parts:
                if part.rank == self.place.rank:
                    buffer[part.where].copy_(wire if part.index is None else wire.index_select(0, part.index))
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

    def _shared_slots(self, width: int, dtype: torch.dtype) -> SharedSlots:
        key = (width, dtype)
        if key not in self._slots:
            place = self.place
            num_rows = []
            for rank in range(place.num_parts * place.replication):
                own = self.rows.own(*divmod(rank, place.replication))
                num_rows.append(own.stop - own.start)
            self._slots[key] = SharedSlots(num_rows, width, dtype, place.timeout_s)
        return self._slots[key]
