"""Bring each rank the rows of H that it multiplies, one stage after the other.

``product_layout.py`` decides how the rows of each stage reach the rank that reads them, by one of four transports:

    OWN         the rank holds the rows already
    BROADCAST   the owner broadcasts the whole block along ``row``, after it has gathered the slices of its replicas
    WHOLE       every holder sends all its rows to each reader, point to point
    HALO        every holder sends each reader only the rows for which the reader's block has a column; the columns of
                the reader's block are renumbered, so that column c multiplies the c-th row that arrives

HALO is the halo exchange of SAR (Mostafa, MLSys'22) and of sparsity-aware CAGNET (Mukhodopadhyay et al., 2024). A
rank never receives rows that it holds. The next stage's rows travel while the current stage is multiplied: two buffers
take turns, where the rows of more than one stage arrive. With ``shared_memory``, on one machine without GPUs, nothing
is sent: the ranks read each other's rows in place.

These transports are for CPUs, and for the experiments of papers on GPUs. Where no key asks for one of them, rows travel
on GPUs as ``packed.py`` has it.

On a GPU, a product reads rows that are padded, so that each begins at a memory line (``aligned.py``), while rows travel
without padding. The rows that have arrived are copied to a padded matrix before their product, while the next stage's
rows arrive. A rank's own rows are padded; where the rank sends whole blocks, it sends a copy without padding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fullgnn.distributed import Axis, SharedSlots, Work, all_gather_objects
from fullgnn.kernels.support.aligned import as_rows, empty_aligned, is_aligned, to_aligned
from fullgnn.schemes.buffers import BufferPool
from fullgnn.schemes.product_layout import BROADCAST, OWN, ProductLayout
from fullgnn.schemes.step_plan import StepPlans

StageRows = tuple[int, slice, Tensor | None]
"""The step of some rows, the columns of X that they have, and the rows; None in a step without rows of this rank."""

EVERY_COLUMN = slice(None)


@dataclass(frozen=True, eq=False)
class RankContext:
    """This rank's place on the mesh, its groups, and how rows travel."""

    part: int
    replica: int
    row: Axis | None  # the ranks of all block rows with this rank's replica number; None: no stage broadcasts
    replicas: Axis  # the ranks that share this rank's block row
    world: Axis  # all ranks
    device: torch.device
    wire_dtype: torch.dtype | None  # dtype in which rows travel; None: unchanged
    shared_memory: bool  # whether the ranks may read each other's rows in place
    pads_rows: bool  # whether rows are padded so that each begins at a memory line, see ``aligned.py``
    buffers: BufferPool  # of all products of this rank

    @property
    def replication(self) -> int:
        return self.replicas.size

    @property
    def rank(self) -> int:
        return self.world.index

    def travelling_dtype(self, rows: Tensor) -> torch.dtype:
        """The dtype in which ``rows`` travel. Whole numbers are never rounded."""
        return self.wire_dtype if self.wire_dtype is not None and rows.is_floating_point() else rows.dtype


@dataclass(frozen=True)
class SentGradients:
    """What every rank must know of the others to read gradients in shared memory."""

    num_rows: list[int]  # of each rank, the most rows that arrive in one of its steps
    first: dict[tuple[int, int], int]  # (reader, step): where in the reader's rows those of this rank begin


class Exchange:
    """The sends and receives of this rank in one product.

    Args:
        halo, boundary: see ``StepPlans``.
        index_device: where the indices of the plans are needed; None: on the device of the rank.
    """

    packed = False
    """Whether rows travel side by side, by one all-to-all a piece."""
    cuts_columns = False
    """Whether ``pieces`` yields some rows a few columns at a time."""

    def __init__(
        self,
        context: RankContext,
        product: ProductLayout,
        halo: list[np.ndarray],
        boundary: list[np.ndarray],
        index_device: torch.device | None = None,
    ):
        self.context, self.product, self.rows, self.num_steps = context, product, product.in_rows, product.num_steps
        place = context.part, context.replica
        planned = StepPlans(product, place, halo, boundary, index_device or context.device)
        self.plans, self.holders, self.readers = planned.steps, planned.holders, planned.readers
        self._sends = [
            [reader for reader in of_step if product.transports[reader.part, context.part] != BROADCAST]
            for of_step in self.readers
        ]
        self._reader_ranks = sorted({reader.rank for of_step in self._sends for reader in of_step})
        self._gathering_replica = product.gathering_replica(context.part)
        all_own = all(plan.transport == OWN for plan in self.plans)
        self._is_local = all_own and not any(self._sends) and self._gathering_replica is None
        broadcasts = self._gathering_replica is not None or any(plan.transport == BROADCAST for plan in self.plans)
        self._sends_whole = broadcasts or any(reader.index is None for of_step in self._sends for reader in of_step)
        self.reads_in_place = context.shared_memory and not (product.transports == BROADCAST).any()
        arriving = [plan.num_rows for plan in self.plans if plan.transport != OWN]
        self._most_arriving = max(arriving, default=0)
        self._num_buffers = min(max(1, len(arriving)), 2)
        ranks = range(context.world.size)
        self._num_held = [self.rows.num_own(*divmod(rank, context.replication)) for rank in ranks]  # rows of X of each

    @property
    def num_own(self) -> int:
        """The number of rows of X that this rank holds."""
        return self._num_held[self.context.rank]

    @cached_property
    def sent_gradients(self) -> "SentGradients":
        """Where in shared memory the other ranks write gradients for this one. The first use is a collective."""
        most = max((plan.num_rows for plan in self.plans), default=0)
        ranks, own = range(self.context.world.size), self.context.rank
        if self.context.buffers.gradient_slots.alone:  # each rank may read all rows of this one
            num_rows = [most if rank == own else max(most, self.num_own) for rank in ranks]
            return SentGradients(num_rows, {(rank, step): 0 for rank in ranks for step in range(self.num_steps)})
        first = {(part.rank, step): part.where.start for step, held in enumerate(self.holders) for part in held}
        by_rank = all_gather_objects((most, first))
        for_this = {
            (reader, step): where
            for reader, (_, theirs) in enumerate(by_rank)
            for (holder, step), where in theirs.items()
            if holder == own
        }
        return SentGradients([rows for rows, _ in by_rank], for_this)

    def steps(self, x: Tensor, scale: Tensor | None, slots: SharedSlots | None = None) -> Iterator[Tensor | None]:
        """Yield the (num_rows, F) rows of H of each step in turn; None in a step in which this rank has no stage.

        Every rank iterates to the end. The next step may overwrite the rows of this one.

        Args:
            x: (num_local_rows, F), this rank's rows of H, to which ``scale`` has not been applied.
            scale: (num_local_rows,) a factor for each row; None: no scaling.
            slots: the shared memory that is used, if any is; None: that of the products.
        """
        if self.reads_in_place:
            yield from self._read(x, scale, slots or self.context.buffers.slots)
        elif self._is_local:
            yield from [self._own(x, scale)] * len(self.plans)
            yield from [None] * (self.num_steps - len(self.plans))
        else:
            yield from self._receive(self._own(x, scale))

    def pieces(self, x: Tensor, scale: Tensor | None) -> Iterator[StageRows]:
        """Yield ``steps`` for a product that may take a few columns at a time."""
        for step, rows in enumerate(self.steps(x, scale)):
            yield step, EVERY_COLUMN, rows

    def _own(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """Return this rank's rows times ``scale``.

        The rows of a scaled tensor begin at memory lines, unless the tensor is sent whole without ``pads_rows``: then
        it is contiguous, so that it can be sent without a copy.
        """
        pads_rows = self.context.pads_rows
        contiguous = self._sends_whole and not pads_rows
        if scale is None and pads_rows:
            return to_aligned(as_rows(x), x.device)
        if scale is None:
            return x.contiguous() if contiguous else as_rows(x)
        out = x.new_empty(x.shape) if contiguous else empty_aligned(len(x), x.shape[1], like=x)
        return torch.mul(x, scale[:, None], out=out)

    def _read(self, x: Tensor, scale: Tensor | None, slots: SharedSlots) -> Iterator[Tensor | None]:
        """Implement ``steps`` with shared memory, where each rank writes its own rows and reads those of others."""
        context, meter = self.context, self.context.world.meter
        with meter.phase("comm"):
            wire = slots.begin(self._num_held, x.shape[1], context.travelling_dtype(x), self._reader_ranks)
        if scale is None:
            wire.copy_(x)
        else:
            torch.mul(x, scale[:, None], out=wire)
        slots.publish()
        for plan in self.plans:
            if plan.transport == OWN:
                unrounded = wire.dtype == x.dtype
                yield wire if unrounded else x if scale is None else x * scale[:, None]
                continue
            held = {}
            for part in plan.parts:
                if part.rank == context.rank:
                    held[part.rank] = wire
                else:
                    with meter.phase("comm"):
                        held[part.rank] = slots.read(part.rank)
                    meter.received("exchange", (part.where.stop - part.where.start) * wire.shape[1] * wire.itemsize)
            if len(plan.parts) == 1 and plan.parts[0].index is None:
                yield held[plan.parts[0].rank].to(x.dtype)
                continue
            rows = context.buffers.arriving(1, self._most_arriving, wire.shape[1], wire.dtype)[0, : plan.num_rows]
            for part in plan.parts:
                if part.index is None:
                    rows[part.where] = held[part.rank]
                else:
                    torch.index_select(held[part.rank], 0, part.index, out=rows[part.where])
            yield rows.to(x.dtype)
        yield from [None] * (self.num_steps - len(self.plans))
        slots.end()

    def _receive(self, x: Tensor) -> Iterator[Tensor | None]:
        """Implement ``steps`` with messages. ``x`` must not change until the last stage has been yielded."""
        wire = x.to(self.context.travelling_dtype(x))
        wire = wire.contiguous() if self._sends_whole else wire
        # One stage's rows arrive in one buffer while the previous stage's rows are read from the other.
        buffers = self.context.buffers.arriving(self._num_buffers, self._most_arriving, wire.shape[1], wire.dtype)
        sent: list[Work] = []
        whole = self._gather(wire, sent)
        in_flight: list[list[Work]] = []
        for step in range(self.num_steps + 1):
            if step < self.num_steps:
                in_flight.append(self._start(step, wire, whole, buffers[step % len(buffers)], sent))
            if step == 0:
                continue
            if step > len(self.plans):
                yield None
                continue
            plan = self.plans[step - 1]
            for work in in_flight[step - 1]:
                work.wait()
            if plan.transport == OWN:
                yield x
            elif plan.transport == BROADCAST and plan.source == self.context.part:
                yield x if self.rows.num_slices == 1 else self._to_aligned(whole, x.dtype)
            else:
                yield self._to_aligned(buffers[(step - 1) % len(buffers), : plan.num_rows], x.dtype)
        for work in sent:
            work.wait()

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory; the buffers are those of the rank, see ``BufferPool``."""
        sent = [reader.index for of_step in self.readers for reader in of_step]
        read = [part.index for plan in self.plans for part in plan.parts]
        return [index for index in (*sent, *read) if index is not None]

    def _start(self, step: int, wire: Tensor, whole: Tensor, buffer: Tensor, sent: list[Work]) -> list[Work]:
        sends = [
            (wire if reader.index is None else wire.index_select(0, reader.index), reader.rank)
            for reader in self._sends[step]
        ]
        receives: list[tuple[Tensor, int]] = []
        arriving: list[Work] = []
        if step < len(self.plans):
            plan = self.plans[step]
            receives = [(buffer[part.where], part.rank) for part in plan.parts if part.rank != self.context.rank]
            if plan.transport == BROADCAST:
                is_owner = plan.source == self.context.part
                tensor = whole if is_owner else buffer[: plan.num_rows]
                assert self.context.row is not None
                arriving.append(self.context.row.broadcast(tensor, plan.source))
            for part in plan.parts:
                if part.rank == self.context.rank:
                    buffer[part.where].copy_(wire if part.index is None else wire.index_select(0, part.index))
        started, received = self.context.world.exchange(sends, receives)
        sent.extend(started)
        return [*arriving, *received]

    def _gather(self, wire: Tensor, sent: list[Work]) -> Tensor:
        """Return the whole block row, gathered from the replicas, if this rank broadcasts it; otherwise ``wire``."""
        root, part = self._gathering_replica, self.context.part
        if root is None:
            return wire
        slices = self.rows.slices(part)
        if root != self.context.replica:
            started, _ = self.context.replicas.exchange([(wire, root)], [], "gather")
            sent.extend(started)
            return wire
        whole = wire.new_empty(self.rows.block_size(part), wire.shape[1])
        whole[slices[root]] = wire
        others = [(whole[rows], replica) for replica, rows in enumerate(slices) if replica != root]
        for work in self.context.replicas.exchange([], others, "gather")[1]:
            work.wait()
        return whole

    def _to_aligned(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Convert the (num, F) ``rows`` that have arrived to the dtype and row padding that products read.

        The next call may overwrite the result.
        """
        if not self.context.pads_rows or (rows.dtype == dtype and is_aligned(rows)):
            return rows.to(dtype)
        return self.context.buffers.padded(self._most_arriving, rows.shape[1], dtype)[: len(rows)].copy_(rows)


def exchange_of(
    context: RankContext, product: ProductLayout, halo: list[np.ndarray], boundary: list[np.ndarray]
) -> Exchange:
    """The exchange of a product on this rank; for the arguments see ``Exchange``."""
    if product.pieces is None or not product.pieces.packed:
        return Exchange(context, product, halo, boundary)
    from fullgnn.schemes.packed import PackedExchange

    return PackedExchange(context, product, halo, boundary)
