"""The exchange of GPUs: rows are packed side by side, and one all-to-all a piece brings them.

    1. ``index_select`` copies the rows that other ranks read into one buffer, those for rank 0 first: one launch.
    2. ``all_to_all_single`` sends them: one collective. Meanwhile the rank's own rows are multiplied.
    3. One product multiplies all rows of the piece, which lie in the order of the ranks that hold them.

There is one piece where memory allows it (``pieces.py``). With more, a piece travels while the one before it is
multiplied, and two buffers take turns. All buffers are those of the rank's pool, so that every step of a CUDA graph has
them at the same addresses, and no stream but the one that multiplies decides when their memory is free.

Messages for each pair of ranks (``exchange.py``) would need a launch and a buffer for each of them; NCCL's sends and
receives, moreover, mark buffers as used by a stream of their own, so that a CUDA graph cannot use their memory again.
The same code runs over gloo, for the tests.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fullgnn.distributed import SharedSlots, Work
from fullgnn.kernels.support.aligned import aligned_stride
from fullgnn.schemes.exchange import EVERY_COLUMN, Exchange, RankContext, StageRows
from fullgnn.schemes.gradient_sum import GradientSum
from fullgnn.schemes.pieces import cut_columns
from fullgnn.schemes.product_layout import ProductLayout


@dataclass(frozen=True, eq=False)
class Message:
    """What this rank sends and receives in one exchange."""

    index: Tensor  # (rows that are sent,) int32, the own rows that other ranks read, reader by reader
    num_sent: list[int]  # for each rank, how many rows of ``index`` it reads
    num_arriving: list[int]  # for each rank, how many of its rows arrive


class PackedExchange(Exchange):
    """An ``Exchange`` whose rows travel side by side."""

    packed = True

    def __init__(
        self, context: RankContext, product: ProductLayout, halo: list[np.ndarray], boundary: list[np.ndarray]
    ):
        super().__init__(context, product, halo, boundary, torch.device("cpu"))
        assert product.pieces is not None
        self._slices = product.pieces.slices
        self.cuts_columns = max(self._slices) > 1
        self.messages = [self._message(step) for step in range(1, self.num_steps)]
        """For each step but the first."""
        self._sums: dict[int, GradientSum] = {}
        self.reads_in_place = False
        self.readers, self._sends = [], []  # one index has replaced those of the readers

    def steps(self, x: Tensor, scale: Tensor | None, slots: SharedSlots | None = None) -> Iterator[Tensor | None]:
        """See ``Exchange``. Rows arrive with all columns."""
        for _, _, rows in self._travel(x, scale, [1] * len(self._slices)):
            yield rows

    def pieces(self, x: Tensor, scale: Tensor | None) -> Iterator[StageRows]:
        """See ``Exchange``. Step 0, if this rank has no rows in it, is None."""
        for step, columns, rows in self._travel(x, scale, self._slices):
            yield step, columns, None if step == 0 and rows is not None and not len(rows) else rows

    def tensors(self) -> list[Tensor]:
        """See ``Exchange``."""
        sums = [tensor for gradient in self._sums.values() for tensor in gradient.tensors()]
        return [*(message.index for message in self.messages), *sums]

    def gradient_sum(self, step: int) -> GradientSum:
        """The sums of the gradients at rows that this rank has sent in ``step``."""
        if step not in self._sums:
            self._sums[step] = GradientSum(self.messages[step - 1].index, self.num_own)
        return self._sums[step]

    def _travel(self, x: Tensor, scale: Tensor | None, slices: list[int]) -> Iterator[StageRows]:
        own, width = self._own(x, scale), x.shape[1]
        wire = own.to(self.context.travelling_dtype(own))
        unit = aligned_stride(x.device, 1, x.dtype)
        pieces = [(step, columns) for step, num in enumerate(slices, 1) for columns in cut_columns(width, num, unit)]
        most = max(self._num_rows(step) * (columns.stop - columns.start) for step, columns in pieces)
        buffers = self.context.buffers.arriving(min(2, len(pieces)), most, 1, wire.dtype)
        arriving = self._send(wire, *pieces[0], buffers[0])
        yield 0, EVERY_COLUMN, own[: self.plans[0].num_rows] if self.plans else None
        for number, (step, columns) in enumerate(pieces, 1):
            rows = arriving.wait()
            if number < len(pieces):
                arriving = self._send(wire, *pieces[number], buffers[number % 2])
            yield step, columns, self._to_aligned(rows, x.dtype) if step < len(self.plans) else None

    def _send(self, wire: Tensor, step: int, columns: slice, buffer: Tensor) -> Work:
        """Send the rows of one piece, and receive those of this rank in ``buffer``, whose last use is over."""
        message, width = self.messages[step - 1], columns.stop - columns.start
        num_sent, num_rows = len(message.index), self._num_rows(step)
        packed = self.context.buffers.leaving(num_sent * width, wire.dtype).view(num_sent, width)
        torch.index_select(wire[:, columns], 0, message.index, out=packed)
        rows = buffer.view(-1)[: num_rows * width].view(num_rows, width)
        return self.context.world.all_to_all_rows(packed, message.num_sent, rows, message.num_arriving, "exchange")

    def _num_rows(self, step: int) -> int:
        return self.plans[step].num_rows if step < len(self.plans) else 0

    def _message(self, step: int) -> Message:
        num_ranks = self.context.world.size
        num_sent, num_arriving = [0] * num_ranks, [0] * num_ranks
        index = [torch.empty(0, dtype=torch.int64)]
        for reader in self.readers[step]:  # in rank order
            assert reader.index is not None
            index.append(reader.index)
            num_sent[reader.rank] = len(reader.index)
        if step < len(self.plans):
            parts = self.plans[step].parts
            for part in parts:
                num_arriving[part.rank] = part.where.stop - part.where.start
            parts[:] = [replace(part, index=None) for part in parts]  # the holders have it
        return Message(torch.cat(index).to(self.context.device, torch.int32), num_sent, num_arriving)
