"""How rows move between ranks, each way with its adjoint.

A layer whose message is not linear in H, such as attention, cannot use a product: it needs the rows themselves,
and the gradients at these rows need a way back to the ranks that own them.

    movement        from                                  to                                      adjoint
    arrivals        own rows of X                         the rows that the stages read           ``Push``
    gather_targets  own targets of a block row            all targets of the block row            ``reduce``
    reduce          partial sums of all targets           own targets, summed over the replicas   ``gather_targets``

On GPUs rows travel side by side, see ``packed.py``, ``packed_push.py`` and ``replicas.py``. What follows is the way
of CPUs, and of experiments of papers. ``arrivals`` uses the transports of ``exchange.py``. In the adjoint the same rows
travel the other way: in step t, the reader of a stage sends the gradient of each row that it has read to the rank that
owns the row, and the owner adds what it receives in this step, in rank order. So a repeated run has the same bits. The
adjoint of a broadcast, too, consists of sends and ordered additions, not of a reduction by the backend. With
``shared_memory`` the owners read the gradients in place.

Where the replicas hold the same rows (``split_rows=False``), such a row is one row of X with r copies: the gradients of
the copies are added by an all-reduce, and every copy gets the sum.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import Tensor

from fullgnn.distributed import Work, all_gather_objects
from fullgnn.schemes.exchange import Exchange
from fullgnn.schemes.packed import PackedExchange
from fullgnn.schemes.packed_push import PackedPush
from fullgnn.schemes.product_layout import RowDistribution
from fullgnn.schemes.replicas import gather_slices, sum_slices
from fullgnn.schemes.step_plan import HeldRows, Reader


class Halo:
    """Moves the rows that one block reads and computes: its ``RowExchange``.

    Args:
        exchange: brings the rows of each stage.
        out_rows: distribution of the targets.
    """

    def __init__(self, exchange: Exchange, out_rows: RowDistribution):
        self.exchange, self._context = exchange, exchange.context
        self.num_steps = exchange.num_steps
        self.joins_targets = self._context.replication > 1
        self.has_copies = exchange.rows.num_slices == 1 and self._context.replication > 1
        self._slices = out_rows.slices(self._context.part)
        self.own = out_rows.own(self._context.part, self._context.replica)
        self.num_targets = out_rows.block_size(self._context.part)
        self._sent: SentGradients | None = None

    @property
    def num_rows(self) -> list[int]:
        """The number of rows that arrive in each stage of this rank."""
        return [plan.num_rows for plan in self.exchange.plans]

    # ---- rows of X and their gradients -------------------------------------------------------------------------------

    def arrivals(self, x: Tensor) -> Iterator[Tensor | None]:
        """Yield the (num_rows, F) rows of each step in turn; None in a step in which this rank has no stage.

        Every rank iterates to the end. The rows of a step may be overwritten as soon as the next step is requested.

        Args:
            x: (num_sources, F), this rank's own rows.
        """
        return self.exchange.steps(x, None, self._context.buffers.row_slots)

    def push(self, width: int, like: Tensor) -> "Push | PackedPush":
        """Begin the adjoint of ``arrivals`` for gradients of ``width`` columns with dtype and device of ``like``."""
        total = like.new_zeros(self.exchange.num_own, width)
        return PackedPush(self.exchange, total) if isinstance(self.exchange, PackedExchange) else Push(self, total)

    # ---- rows of Y along the replicas --------------------------------------------------------------------------------

    def gather_targets(self, own: Tensor) -> Tensor:
        """Return the (num_targets, F) rows of the block row, of which every replica has its own (num_own, F)."""
        if len(self._slices) == 1:
            return own
        axis, replica = self._context.axes.replica, self._context.replica
        if self.exchange.packed:
            return gather_slices(own, self._slices, axis)
        whole, own = own.new_empty(self.num_targets, own.shape[1]), own.contiguous()
        whole[self.own] = own
        others = [k for k in range(len(self._slices)) if k != replica]
        sends = [(own, k) for k in others]
        sent, arriving = axis.exchange(sends, [(whole[self._slices[k]], k) for k in others], "gather")
        for work in (*arriving, *sent):
            work.wait()
        return whole

    def reduce(self, partial: Tensor) -> Tensor:
        """Sum (num_targets, F) partial sums over the replicas, in replica order, and return the own (num_own, F)."""
        axis, replica = self._context.axes.replica, self._context.replica
        if axis.size == 1:
            return partial
        if len(self._slices) == 1:
            return axis.all_reduce(partial.clone())
        if self.exchange.packed:
            return sum_slices(partial, self._slices, axis)
        others = [k for k in range(len(self._slices)) if k != replica]
        sends = [(partial[self._slices[k]].contiguous(), k) for k in others]
        parts = {k: partial.new_empty(self.own.stop - self.own.start, partial.shape[1]) for k in others}
        sent, arriving = axis.exchange(sends, [(parts[k], k) for k in others], "reduce_scatter")
        for work in (*arriving, *sent):
            work.wait()
        first, *rest = (partial[self.own] if k == replica else parts[k] for k in range(len(self._slices)))
        total = first.clone()
        for part in rest:
            total += part
        return total

    def maximum(self, partial: Tensor) -> Tensor:
        """Return the elementwise maximum of the replicas' (num_targets, F) partial results."""
        axis = self._context.axes.replica
        return partial if axis.size == 1 else axis.all_reduce(partial.clone(), "max")

    def sum_partial(self, tensor: Tensor) -> Tensor:
        """Add the replicas' parts of a sum over edges in place, where the replicas hold the same rows."""
        return self._context.axes.replica.all_reduce(tensor) if len(self._slices) == 1 else tensor

    def computing(self) -> AbstractContextManager[None]:
        """See ``RowExchange``."""
        return self._context.axes.world.meter.phase("spmm")

    def sent_gradients(self) -> "SentGradients":
        """Where in shared memory the other ranks write gradients for this one. The first call is a collective."""
        if self._sent is None:
            self._sent = SentGradients.exchange(self.exchange)
        return self._sent


class Push:
    """The gradients at the rows that have arrived travel home. Every rank calls ``step`` once for each step, in order,
    and then ``finish``."""

    def __init__(self, halo: Halo, total: Tensor):
        self._halo, self._total = halo, total
        self._exchange, self._context = halo.exchange, halo.exchange.context
        self._wire_dtype = self._context.travelling_dtype(total)
        self._step = 0
        self._sent: list[Work] = []
        self._arriving: list[tuple[Tensor | None, Work | Tensor]] = []  # index of the own rows, and their gradients

    def step(self, gradient: Tensor | None) -> None:
        """Send the (num_rows, F) gradient of this step's rows; None in a step in which this rank has no stage."""
        held = [] if gradient is None else self._exchange.holders[self._step]
        if self._exchange.reads_in_place:
            self._write(gradient, held)
        else:
            self._send(gradient, held)
        self._step += 1

    def finish(self) -> Tensor:
        """Return the (num_sources, F) gradient of this rank's own rows."""
        assert self._step == self._halo.num_steps
        self._add()
        for work in self._sent:
            work.wait()
        split = self._exchange.rows.num_slices > 1
        return self._total if split else self._context.axes.replica.all_reduce(self._total)

    def _send(self, gradient: Tensor | None, held: list[HeldRows]) -> None:
        rank, width = self._context.rank, self._total.shape[1]
        sends, entries = [], list[tuple[int, Tensor | None, Tensor | int]]()
        for part in held:
            assert gradient is not None
            rows = gradient[part.where]
            if part.rank == rank:
                entries.append((rank, part.index, rows))
            else:
                sends.append((rows.to(self._wire_dtype).contiguous(), part.rank))
        receives: list[tuple[Tensor, int]] = []
        for reader in self._exchange.readers[self._step]:
            num_rows = self._num_read(reader)
            entries.append((reader.rank, reader.index, len(receives)))
            receives.append((self._total.new_empty(num_rows, width, dtype=self._wire_dtype), reader.rank))
        sent, arriving = self._context.axes.world.exchange(sends, receives, "push")
        self._add()  # the previous step's gradients, while this step's travel
        self._sent.extend(sent)
        ordered = sorted(entries, key=lambda entry: entry[0])
        self._arriving = [(index, arriving[rows] if isinstance(rows, int) else rows) for _, index, rows in ordered]

    def _write(self, gradient: Tensor | None, held: list[HeldRows]) -> None:
        """Implement ``_send`` with shared memory: the owners read the gradients where their readers write them."""
        rank, meter = self._context.rank, self._context.axes.world.meter
        slots, sent = self._context.buffers.gradient_slots, self._halo.sent_gradients()
        owners = [part.rank for part in held if part.rank != rank]
        with meter.phase("comm"):
            slot = slots.begin(sent.num_rows, self._total.shape[1], self._wire_dtype, owners)
        entries = []
        if gradient is not None:
            slot[: len(gradient)].copy_(gradient)
            entries = [(rank, part.index, gradient[part.where]) for part in held if part.rank == rank]
        slots.publish()
        for reader in self._exchange.readers[self._step]:
            num_rows = self._num_read(reader)
            with meter.phase("comm"):
                first = sent.first[reader.rank, self._step]
                written = slots.read(reader.rank, slice(first, first + num_rows))
            entries.append((reader.rank, reader.index, written))
            meter.received("push", written.numel() * written.itemsize)
        self._arriving = [(index, rows) for _, index, rows in sorted(entries, key=lambda entry: entry[0])]
        self._add()
        slots.end()

    def _num_read(self, reader: Reader) -> int:
        return len(self._total) if reader.index is None else len(reader.index)

    def _add(self) -> None:
        """Add the gradients that have arrived, in rank order, to those of the own rows."""
        for index, arriving in self._arriving:
            rows = (arriving.wait() if isinstance(arriving, Work) else arriving).to(self._total.dtype)
            if index is None:
                self._total += rows
            else:
                self._total.index_add_(0, index, rows)  # no row occurs twice
        self._arriving = []


@dataclass(frozen=True)
class SentGradients:
    """What every rank must know of the others to read gradients in shared memory."""

    num_rows: list[int]  # of each rank, the most rows that arrive in one of its steps
    first: dict[tuple[int, int], int]  # (reader, step): where in the reader's rows those of this rank begin

    @classmethod
    def exchange(cls, exchange: Exchange) -> "SentGradients":
        """Every rank calls it."""
        context = exchange.context
        first = {(part.rank, step): part.where.start for step, held in enumerate(exchange.holders) for part in held}
        by_rank = all_gather_objects((_most_rows(exchange), first))
        if len(by_rank) < context.num_parts * context.replication:
            return cls.alone(exchange)
        own = {
            (reader, step): where
            for reader, (_, theirs) in enumerate(by_rank)
            for (holder, step), where in theirs.items()
            if holder == context.rank
        }
        return cls([rows for rows, _ in by_rank], own)

    @classmethod
    def alone(cls, exchange: Exchange) -> "SentGradients":
        """Without other ranks, as in a dry run: each of them may read all rows of this one."""
        ranks, own = range(exchange.context.num_parts * exchange.context.replication), _most_rows(exchange)
        first = {(rank, step): 0 for rank in ranks for step in range(exchange.num_steps)}
        of_others = max(own, exchange.num_own)
        return cls([own if rank == exchange.context.rank else of_others for rank in ranks], first)


def _most_rows(exchange: Exchange) -> int:
    """The most rows that arrive in one of this rank's steps."""
    return max((plan.num_rows for plan in exchange.plans), default=0)
