"""Values of edges that a layer computes itself, distributed and differentiable.

The edges of a target lie in several stages, on several ranks. ``EdgeValues`` has the (E, K) values of each stage of
this rank. They are made from the rows at both ends of the edges, changed by plain torch in ``map``, and consumed:

    of_sources, of_targets    the rows of X at the edges' sources, or at their targets
    map                       any function of the values of an edge
    softmax                   over all edges of each target
    spmm                      sum of the sources' rows, times the values
    reduce                    sum, mean or maximum over all edges of each target

Every rank calls each of these functions, in the same order, also a rank without stages.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fullgnn.errors import UnsupportedError
from fullgnn.graph import EdgeSet
from fullgnn.kernels.edges.index import edge_rows, repeat_targets
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.edges.reduce import add_largest, add_messages, check_aggregation, largest_backward
from fullgnn.kernels.edges.weighted import edge_dots, edge_spmm_into, edge_spmm_transposed
from fullgnn.schemes.block import Block
from fullgnn.schemes.edges import Stage
from fullgnn.schemes.row_exchange import linear_map


@dataclass(frozen=True, eq=False)
class EdgeValues:
    """Values of the edges of ``block``; see the module."""

    block: Block
    stages: tuple[Stage, ...]
    parts: tuple[Tensor, ...]  # (E, K) for each stage, in the order of its edges
    anchor: Tensor  # (0, K), through which the backward pass reaches a rank without stages

    @classmethod
    def of_sources(cls, block: Block, edge_set: EdgeSet, x: Tensor) -> "EdgeValues":
        """The row of each edge's source, of (num_sources, K) own rows.

        Raises:
            UnsupportedError: the block lacks these edges, or its replicas hold the same rows.
        """
        read = block, _stages(block, edge_set)
        anchor, *parts = linear_map(partial(_fetch, *read), partial(_send_home, *read), x)
        return cls(*read, tuple(parts), anchor)

    @classmethod
    def of_targets(cls, block: Block, edge_set: EdgeSet, x: Tensor) -> "EdgeValues":
        """The row of each edge's target, of (num_sources, K) own rows. Raises: see ``of_sources``."""
        read = block, _stages(block, edge_set)
        anchor, *parts = linear_map(partial(_repeat, *read), partial(_add_up, *read), block.at_targets(x))
        return cls(*read, tuple(parts), anchor)

    def map(self, function: Callable[..., Tensor], *others: "EdgeValues") -> "EdgeValues":
        """``function`` of these values and of ``others``, edge by edge: it maps (E, K) tensors to (E, K')."""
        parts = (function(*values) for values in zip(self.parts, *(other.parts for other in others), strict=True))
        anchor = function(self.anchor, *(other.anchor for other in others))
        return EdgeValues(self.block, self.stages, tuple(parts), anchor)

    def softmax(self) -> "EdgeValues":
        """The softmax over all edges of each target, column by column."""
        anchor, *parts = _Softmax.apply(self.block, self.stages, self.anchor, *self.parts)
        return EdgeValues(self.block, self.stages, tuple(parts), anchor)

    def spmm(self, x: Tensor) -> Tensor:
        """The sum over each target's edges of the source's row times the value, head by head.

        Args:
            x: (num_sources, K * D) own rows. They arrive stage by stage, and once more in the backward pass.

        Returns:
            (num_own_targets, K * D), 0 for a target without edges.
        """
        return _SpMM.apply(x, self.block, self.stages, self.anchor, *self.parts)

    def reduce(self, aggregation: str) -> Tensor:
        """The ``sum``, ``mean`` or ``max`` over all edges of each target (of equal values, the one from the lowest
        original id counts): (num_own_targets, K), 0 for a target without edges.

        Raises:
            ConfigError: another aggregation.
        """
        check_aggregation(aggregation)
        if aggregation == "max":
            return _Largest.apply(self.block, self.stages, self.anchor, *self.parts)
        read = self.block, self.stages
        total = linear_map(partial(_add_up, *read), partial(_repeat, *read), self.anchor, *self.parts)
        return total if aggregation == "sum" else total / self._num_edges()

    def _num_edges(self) -> Tensor:
        """(num_own_targets, 1) number of edges of each target, at least 1."""
        total = self.anchor.new_zeros(len(self.block.target_id), 1)
        for stage in self.stages:
            total += stage.csr.indptr.diff()[:, None]
        return self.block.reduce(total).clamp(min=1)


def joined_maximum(state: MaxState, block: Block) -> MaxState:
    """The state of all targets of the block row, from what each replica has found."""
    value = block.exchange.maximum(state.value)
    if value is state.value:  # no replica has other edges
        return state
    return MaxState(value, -block.exchange.maximum(-state.winners(value)))


def own_maximum(state: MaxState, block: Block) -> Tensor:
    """(num_own_targets, F) largest values, from the joined ``state`` of all targets."""
    return MaxState(state.value[block.own], state.winner[block.own]).finish()


def _stages(block: Block, edge_set: EdgeSet) -> tuple[Stage, ...]:
    if block.exchange.has_copies:
        # A parameter that ``map`` uses would get the gradients of this replica's edges alone.
        raise UnsupportedError(
            "values of edges need replicas that hold different rows: set scheme.split_rows=true for this model"
        )
    return block.stages(edge_set)


def _all_targets(block: Block, partial: Tensor) -> Tensor:
    """The sum of the replicas' (num_targets, K) partial sums, on each of them."""
    return block.exchange.gather_targets(block.exchange.reduce(partial))


def _fetch(block: Block, stages: tuple[Stage, ...], x: Tensor) -> tuple[Tensor, ...]:
    """An anchor, and the (E, K) rows of (num_sources, K) ``x`` at the sources of each stage's edges."""
    arrivals = enumerate(block.exchange.arrivals(x))
    parts = [rows.index_select(0, stages[step].csr.indices) for step, rows in arrivals if rows is not None]
    return x.new_empty(0, x.shape[1]), *parts


def _send_home(block: Block, stages: tuple[Stage, ...], anchor: Tensor, *grads: Tensor) -> Tensor:
    """The transpose of ``_fetch``."""
    push = block.exchange.push(anchor.shape[1], anchor)
    for step in range(block.exchange.num_steps):
        push.step(_by_source(stages[step], grads[step]) if step < len(stages) else None)
    return push.finish()


def _by_source(stage: Stage, grad: Tensor) -> Tensor:
    """(num_rows, K) sums of the (E, K) ``grad`` over the edges of each source, in the order of the targets."""
    edges = stage.transposed
    total = grad.new_zeros(edges.num_rows, grad.shape[1])
    add_messages(edges, grad.index_select(0, edges.places), total)
    return total


def _repeat(block: Block, stages: tuple[Stage, ...], own: Tensor) -> tuple[Tensor, ...]:
    """An anchor, and the (E, K) rows of (num_own_targets, K) ``own`` at the targets of each stage's edges."""
    rows = block.exchange.gather_targets(own.contiguous())
    return own.new_empty(0, own.shape[1]), *(repeat_targets(stage.csr, rows) for stage in stages)


def _add_up(block: Block, stages: tuple[Stage, ...], anchor: Tensor, *values: Tensor) -> Tensor:
    """The transpose of ``_repeat``: the sums of the values over the edges of each target."""
    return block.exchange.reduce(_by_target(block, stages, anchor, values))


def _by_target(block: Block, stages: tuple[Stage, ...], like: Tensor, values: tuple[Tensor, ...]) -> Tensor:
    """(num_targets, K) sums of the values over this rank's edges of each target; ``like`` is (0, K)."""
    total = like.new_zeros(len(block.target_id), like.shape[1])
    for stage, value in zip(stages, values, strict=True):
        add_messages(stage.csr, value, total)
    return total


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, block: Block, stages: tuple[Stage, ...], anchor: Tensor, *logits: Tensor
    ) -> tuple[Tensor, ...]:
        targets = [edge_rows(stage.csr) for stage in stages]
        state = MaxState.empty(len(block.target_id), anchor.shape[1], anchor)
        for stage, logit in zip(stages, logits, strict=True):
            add_largest(stage.csr, logit, torch.arange(stage.csr.num_cols, device=logit.device), state)
        maximum = block.exchange.maximum(state.value)
        parts = tuple((logit - maximum[target]).exp_() for logit, target in zip(logits, targets))
        total = _all_targets(block, _by_target(block, stages, anchor, parts))
        parts = tuple(part.div_(total[target]) for part, target in zip(parts, targets))
        ctx.block, ctx.stages = block, stages
        ctx.save_for_backward(anchor, *parts)
        return torch.empty_like(anchor), *parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        anchor, *parts = ctx.saved_tensors
        products = tuple(part * grad for part, grad in zip(parts, grads[1:]))
        dot = _all_targets(ctx.block, _by_target(ctx.block, ctx.stages, anchor, products))
        grad_parts = (
            product - part * repeat_targets(stage.csr, dot) for stage, part, product in zip(ctx.stages, parts, products)
        )
        return None, None, torch.zeros_like(anchor), *grad_parts


class _SpMM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, block: Block, stages: tuple[Stage, ...], anchor: Tensor, *values: Tensor
    ) -> Tensor:
        x = x.detach()
        total = x.new_zeros(len(block.target_id), x.shape[1])
        for step, rows in enumerate(block.exchange.arrivals(x)):
            if rows is not None:
                edge_spmm_into(stages[step].csr, values[step], rows, total)
        ctx.block, ctx.stages = block, stages
        ctx.save_for_backward(x, anchor, *values)
        return block.exchange.reduce(total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, anchor, *values = ctx.saved_tensors
        exchange = ctx.block.exchange
        grad_all = exchange.gather_targets(grad.contiguous())
        push, grad_values = exchange.push(x.shape[1], x), []
        for step, rows in enumerate(exchange.arrivals(x)):
            grad_rows = None
            if rows is not None:
                stage = ctx.stages[step]
                grad_values.append(edge_dots(stage.csr, grad_all, rows, anchor.shape[1]))
                grad_rows = edge_spmm_transposed(stage.csr, stage.transposed, values[step], grad_all)
            push.step(grad_rows)
        return push.finish(), None, None, torch.zeros_like(anchor), *grad_values


class _Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: Block, stages: tuple[Stage, ...], anchor: Tensor, *values: Tensor) -> Tensor:
        state = MaxState.empty(len(block.target_id), anchor.shape[1], anchor)
        for stage, value, source_id in zip(stages, values, block.stage_source_id):
            add_largest(stage.csr, value, source_id, state)
        state = joined_maximum(state, block)
        ctx.block, ctx.stages = block, stages
        ctx.save_for_backward(state.winner)
        return own_maximum(state, block)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (winner,) = ctx.saved_tensors
        grad_all = ctx.block.exchange.gather_targets(grad.contiguous())
        ids = ctx.block.stage_source_id
        grads = (largest_backward(stage.csr, source_id, winner, grad_all) for stage, source_id in zip(ctx.stages, ids))
        return None, None, grad[:0], *grads
