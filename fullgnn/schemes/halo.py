"""The halo exchange: rows move to the ranks that read them, and gradients back, each way with its adjoint.

A layer whose message is not linear in H, such as attention, cannot use a product: it needs the rows themselves,
and the gradients at these rows need a way back to the ranks that own them.

    movement        from                                  to                                      adjoint
    arrivals        own rows of X                         the rows that the stages read           ``push.py``
    gather_targets  own targets of a block row            all targets of the block row            ``reduce``
    reduce          partial sums of all targets           own targets, summed over the replicas   ``gather_targets``

On GPUs rows travel side by side, see ``packed.py``; otherwise ``arrivals`` uses the transports of ``exchange.py``.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from torch import Tensor

from fullgnn.schemes.exchange import Exchange
from fullgnn.schemes.push import PackedPush, Push
from fullgnn.schemes.replicas import gather_slices, sum_slices
from fullgnn.schemes.row_exchange import RowExchange


class Halo(RowExchange):
    """Moves the rows that one block reads and computes.

    Args:
        exchange: brings the rows of each stage.
    """

    def __init__(self, exchange: Exchange):
        self.exchange, self._context, out_rows = exchange, exchange.context, exchange.product.out_rows
        self.num_steps, self.num_rows = exchange.num_steps, [plan.num_rows for plan in exchange.plans]
        self.joins_targets = self._context.replication > 1
        self.has_copies = exchange.rows.num_slices == 1 and self._context.replication > 1
        self._slices = out_rows.slices(self._context.part)
        self.own = out_rows.own(self._context.part, self._context.replica)
        self.num_targets = out_rows.block_size(self._context.part)

    def arrivals(self, x: Tensor) -> Iterator[Tensor | None]:
        """See ``RowExchange``."""
        return self.exchange.steps(x, None, self._context.buffers.row_slots)

    def push(self, width: int, like: Tensor) -> Push:
        """See ``RowExchange``."""
        total = like.new_zeros(self.exchange.num_own, width)
        return PackedPush(self.exchange, total) if self.exchange.packed else Push(self.exchange, total)

    def gather_targets(self, own: Tensor) -> Tensor:
        """See ``RowExchange``."""
        if len(self._slices) == 1:
            return own
        return gather_slices(own, self._slices, self._context.replicas, self.exchange.packed)

    def reduce(self, partial: Tensor) -> Tensor:
        """See ``RowExchange``."""
        axis = self._context.replicas
        if axis.size == 1:
            return partial
        if len(self._slices) == 1:
            return axis.all_reduce(partial.clone())
        return sum_slices(partial, self._slices, axis, self.exchange.packed)

    def maximum(self, partial: Tensor) -> Tensor:
        """See ``RowExchange``."""
        axis = self._context.replicas
        return partial if axis.size == 1 else axis.all_reduce(partial.clone(), "max")

    def sum_partial(self, tensor: Tensor) -> Tensor:
        """See ``RowExchange``."""
        return self._context.replicas.all_reduce(tensor) if len(self._slices) == 1 else tensor

    def computing(self) -> AbstractContextManager[None]:
        """See ``RowExchange``."""
        return self._context.world.meter.phase("spmm")
