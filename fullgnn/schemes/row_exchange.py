"""The exchange of the rows that a block reads and computes, and of their gradients back.

The classes here are those of one process that has all rows: nothing moves. ``halo.py`` and ``push.py`` move rows
between several ranks. Every rank takes part in each step, in order.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class RowExchange:
    """The rows of a block whose sources and targets all lie in this process, in one stage."""

    num_steps = 1
    joins_targets = False
    """Whether a block row has several replicas, each with a part of the edges of each target."""
    has_copies = False
    """Whether the replicas of a block row hold the same rows."""

    def __init__(self, num_sources: int, num_targets: int):
        self.num_rows, self.num_targets = [num_sources], num_targets
        """The number of rows that arrive in each stage of this rank, and that of all targets of its block row."""
        self.own = slice(0, num_targets)
        """This rank's own targets among all targets of its block row."""

    def arrivals(self, x: Tensor) -> Iterator[Tensor | None]:
        """Yield the (num_rows, F) rows of each step in turn; None in a step in which this rank has no stage.

        Every rank iterates to the end. The rows of a step may be overwritten as soon as the next step is requested.

        Args:
            x: (num_sources, F), this rank's own rows.
        """
        yield x

    def push(self, width: int, like: Tensor) -> "GradientPush":
        """Begin the adjoint of ``arrivals`` for gradients of ``width`` columns with dtype and device of ``like``."""
        return GradientPush()

    def gather_targets(self, own: Tensor) -> Tensor:
        """Return the (num_targets, F) rows of the block row, of which every replica has its own (num_own, F)."""
        return own

    def reduce(self, partial: Tensor) -> Tensor:
        """Sum (num_targets, F) partial sums over the replicas, in replica order, and return the own (num_own, F)."""
        return partial

    def maximum(self, partial: Tensor) -> Tensor:
        """Return the elementwise maximum of the replicas' (num_targets, F) partial results."""
        return partial

    def sum_partial(self, tensor: Tensor) -> Tensor:
        """Complete a sum over edges, such as the gradient of a parameter that messages use, of which each rank has its
        edges' part: where replicas hold the same rows, and so count once, add their parts in place."""
        return tensor

    def computing(self) -> AbstractContextManager[None]:
        """The context of a kernel that goes over the edges of one stage, whose time counts as ``spmm``."""
        return nullcontext()


class GradientPush:
    """Gradients at the rows that have arrived, on their way to the owners of the rows."""

    def step(self, gradient: Tensor | None) -> None:
        """Send the (num_rows, F) gradient of this step's rows; None in a step in which this rank has no stage."""
        assert gradient is not None
        self._gradient = gradient

    def finish(self) -> Tensor:
        """Return the (num_sources, F) gradient of this rank's own rows."""
        return self._gradient


class OneRank:
    """``JoinsRows`` of a process that has all rows."""

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        return tensor

    def gather_partial(self, tensor: Tensor) -> Tensor:
        return tensor[None]


ONE_RANK = OneRank()


def linear_map(function: Callable[..., Any], adjoint: Callable[..., Any], *tensors: Tensor) -> Any:
    """``function`` of some tensors, in which it is linear, differentiable: ``adjoint`` maps the gradients of what it
    returns to those of the tensors.

    Each of both returns a tensor or a tuple of tensors, and is called outside autograd. They may be collectives, which
    every rank calls.
    """
    return _LinearMap.apply(function, adjoint, *tensors)


class _LinearMap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], adjoint: Callable[..., Any], *tensors: Tensor) -> Any:
        ctx.adjoint = adjoint
        return function(*(tensor.detach() for tensor in tensors))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.adjoint(*grads)
        return None, None, *(gradients if isinstance(gradients, tuple) else (gradients,))
