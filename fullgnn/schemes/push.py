"""The gradients at rows that have arrived travel home: the adjoint of ``Halo.arrivals``.

In messages, the same rows travel the other way: in step t, the reader of a stage sends the gradient of each row that it
has read to the rank that owns the row, and the owner adds what it receives in this step, in rank order. So a repeated
run has the same bits. The adjoint of a broadcast, too, consists of sends and ordered additions, not of a reduction by
the backend. With ``shared_memory`` the owners read the gradients in place.

Side by side, the rows of a step lie in the order of the ranks that hold them, see ``packed.py``, and so do their
gradients: one all-to-all sends them as they are, and ``gradient_sum.py`` adds those that arrive.

Those of a step are added while those of the next one travel. Where the replicas hold the same rows
(``split_rows=False``), such a row is one row of X with r copies: the gradients of the copies are added by an
all-reduce, and every copy gets the sum.
"""

from typing import TYPE_CHECKING

from torch import Tensor

from fullgnn.distributed import Work
from fullgnn.schemes.exchange import Exchange
from fullgnn.schemes.row_exchange import GradientPush
from fullgnn.schemes.step_plan import HeldRows, Reader

if TYPE_CHECKING:
    from fullgnn.schemes.gradient_sum import GradientSum
    from fullgnn.schemes.packed import PackedExchange


class Push(GradientPush):
    """Gradients that travel home in messages, or that their owners read in shared memory.

    Args:
        total: (num_sources, F) zeros.
    """

    def __init__(self, exchange: Exchange, total: Tensor):
        self._exchange, self._context, self._total = exchange, exchange.context, total
        self._wire_dtype = self._context.travelling_dtype(total)
        self._step = 0
        self._sent: list[Work] = []
        self._arriving: list[tuple[Tensor | None, Work | Tensor]] = []  # index of the own rows, and their gradients

    def step(self, gradient: Tensor | None) -> None:
        """See ``GradientPush``."""
        self._send_step(gradient)
        self._step += 1

    def finish(self) -> Tensor:
        """See ``GradientPush``."""
        assert self._step == self._exchange.num_steps
        self._add()
        for work in self._sent:
            work.wait()
        split = self._exchange.rows.num_slices > 1
        return self._total if split else self._context.replicas.all_reduce(self._total)

    def _send_step(self, gradient: Tensor | None) -> None:
        held = [] if gradient is None else self._exchange.holders[self._step]
        if self._exchange.reads_in_place:
            self._write(gradient, held)
        else:
            self._send(gradient, held)

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
        sent, arriving = self._context.world.exchange(sends, receives, "push")
        self._add()  # the previous step's gradients, while this step's travel
        self._sent.extend(sent)
        ordered = sorted(entries, key=lambda entry: entry[0])
        self._arriving = [(index, arriving[rows] if isinstance(rows, int) else rows) for _, index, rows in ordered]

    def _write(self, gradient: Tensor | None, held: list[HeldRows]) -> None:
        """Implement ``_send`` with shared memory: the owners read the gradients where their readers write them."""
        rank, meter = self._context.rank, self._context.world.meter
        slots, sent = self._context.buffers.gradient_slots, self._exchange.sent_gradients
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


class PackedPush(Push):
    """Gradients that travel home side by side."""

    _exchange: "PackedExchange"
    _under_way: "tuple[GradientSum, Work, Tensor] | None" = None  # the last are the rows that leave

    def _send_step(self, gradient: Tensor | None) -> None:
        exchange, width = self._exchange, self._total.shape[1]
        if self._step == 0:
            if gradient is not None and len(gradient):
                self._total += gradient
            return
        message = exchange.messages[self._step - 1]
        if gradient is None:
            gradient = self._total.new_empty(0, width)
        sent = gradient.to(self._wire_dtype).contiguous()
        num_buffers, most = min(2, len(exchange.messages)), max(len(message.index) for message in exchange.messages)
        buffers = self._context.buffers.gradients(num_buffers, most, width, self._wire_dtype)
        arriving = buffers[self._step % num_buffers, : len(message.index)]
        world = self._context.world
        work = world.all_to_all_rows(sent, message.num_arriving, arriving, message.num_sent, "push")
        self._add()  # the previous step's gradients, while this step's travel
        self._under_way = exchange.gradient_sum(self._step), work, sent

    def _add(self) -> None:
        if self._under_way is not None:
            sums, work, _ = self._under_way
            sums.add(work.wait().to(self._total.dtype), self._total)
        self._under_way = None
