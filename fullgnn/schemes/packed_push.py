"""The gradients at rows that have arrived side by side travel home side by side: the adjoint of ``packed.py``.

The rows of a step lie in the order of the ranks that hold them, and so do their gradients: one all-to-all sends them as
they are, and ``gradient_sum.py`` adds those that arrive. Those of a step are added while those of the next one travel.
"""

from torch import Tensor

from fullgnn.distributed import Work
from fullgnn.schemes.gradient_sum import GradientSum
from fullgnn.schemes.packed import PackedExchange


class PackedPush:
    """A ``GradientPush``. Every rank calls ``step`` once for each step, in order, and then ``finish``.

    Args:
        total: (num_sources, F) zeros.
    """

    def __init__(self, exchange: PackedExchange, total: Tensor):
        self._exchange, self._context, self._total = exchange, exchange.context, total
        self._wire_dtype = self._context.travelling_dtype(total)
        self._step = 0
        self._under_way: tuple[GradientSum, Work, Tensor] | None = None  # the last are the rows that leave

    def step(self, gradient: Tensor | None) -> None:
        """Send the (num_rows, F) gradient of this step's rows; None in a step in which this rank has no stage."""
        if self._step == 0:
            if gradient is not None and len(gradient):
                self._total += gradient
        else:
            self._send(gradient)
        self._step += 1

    def finish(self) -> Tensor:
        """Return the (num_sources, F) gradient of this rank's own rows."""
        assert self._step == self._exchange.num_steps
        self._add()
        split = self._exchange.rows.num_slices > 1
        return self._total if split else self._context.axes.replica.all_reduce(self._total)

    def _send(self, gradient: Tensor | None) -> None:
        exchange, width = self._exchange, self._total.shape[1]
        message = exchange.messages[self._step - 1]
        if gradient is None:
            gradient = self._total.new_empty(0, width)
        sent = gradient.to(self._wire_dtype).contiguous()
        num_buffers, most = min(2, len(exchange.messages)), max(len(message.index) for message in exchange.messages)
        buffers = self._context.buffers.gradients(num_buffers, most, width, self._wire_dtype)
        arriving = buffers[self._step % num_buffers, : len(message.index)]
        world = self._context.axes.world
        work = world.all_to_all_rows(sent, message.num_arriving, arriving, message.num_sent, "push")
        self._add()  # the previous step's gradients, while this step's travel
        self._under_way = exchange.gradient_sum(self._step), work, sent

    def _add(self) -> None:
        if self._under_way is not None:
            sums, work, _ = self._under_way
            sums.add(work.wait().to(self._total.dtype), self._total)
        self._under_way = None
