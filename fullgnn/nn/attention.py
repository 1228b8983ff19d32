"""Attention over the neighbours of each target, distributed: stage by stage, and joined over the replicas.

    forward    the rows x_j and their logits arrive together, stage by stage, and are added to the state of a softmax
               (largest logit, sum of weights, weighted sum of rows); the replicas join their states
    backward   the rows arrive again; the weights are computed again; gradients at the rows travel home stage by stage

No rank holds the rows of more than two stages, and nothing is kept for an edge.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fullgnn.graph import EdgeSet
from fullgnn.kernels.edges.attention import attend, attend_backward
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.softmax_state import SoftmaxState, by_head
from fullgnn.nn.dropout import Dropout
from fullgnn.schemes.block import Block


@dataclass(frozen=True, eq=False)
class AttentionBase:
    """What the attentions over the edges of a block have in common.

    In a graph with edge weights, the softmax does not read them; each row of a source is multiplied by its share of the
    softmax and by the weight of its edge.

    Args:
        num_heads: K.
        slope: negative slope of the LeakyReLU.
        dropout: drops attention weights; None: none are dropped.
    """

    edge_set: EdgeSet
    num_heads: int
    slope: float = 0.2
    dropout: Dropout | None = None

    def masks(self, block: Block) -> list[EdgeMask | None]:
        """The dropout of each stage of this rank."""
        drop = self.dropout
        if drop is None or not drop.training or drop.p == 0:
            return [None] * len(block.stages(self.edge_set))
        target_id, source_ids = block.target_id, block.stage_source_id  # every rank takes part in the first use
        return [EdgeMask(target_id, ids, drop.p, drop.seed, drop.epoch, drop.layer) for ids in source_ids]


@dataclass(frozen=True, eq=False)
class Attention(AttentionBase):
    """The attention of Velickovic et al. (2018), equations 3 and 4, over the edges of a block."""

    def __call__(self, x: Tensor, block: Block) -> Tensor:
        """Return the sums of the sources' rows, weighted by attention: (num_sources, K * D + 2 K) to (num_own_targets,
        K * D).

        Args:
            x: the rows, then the K logits that each row has as a source, then the K that it has as a target.
        """
        return _Attend.apply(x, self, block)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, attention: Attention, block: Block) -> Tensor:
        x, exchange, num_heads = x.detach(), block.exchange, attention.num_heads
        width = x.shape[1] - 2 * num_heads
        masks, stages = attention.masks(block), block.stages(attention.edge_set)
        logit_target = block.at_targets(x[:, width + num_heads :]).contiguous()
        all_targets = exchange.gather_targets(logit_target)
        state = SoftmaxState.empty(len(all_targets), num_heads, width, x)
        for step, rows in enumerate(exchange.arrivals(x[:, : width + num_heads])):
            if rows is not None:
                logits, arrived = rows[:, width:], rows[:, :width]
                reads = stages[step].csr, logits, arrived, attention.slope, masks[step]
                with exchange.computing():
                    attend(AttentionStage(*reads), all_targets, state)  # no copy of the logits lives longer
        joined = join_states(state, block)
        out = joined.finish()
        ctx.save_for_backward(x, out, logit_target, joined.maximum, joined.total)
        ctx.attention, ctx.block, ctx.masks = attention, block, masks
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        attention, block, masks, exchange = ctx.attention, ctx.block, ctx.masks, ctx.block.exchange
        x, out, logit_target, maximum, total = ctx.saved_tensors
        num_heads, width = attention.num_heads, out.shape[1]
        dot = (by_head(grad, total) * by_head(out, total)).sum(2)
        parts = at_all_targets(block, [logit_target, maximum, total, grad, dot])
        logit_of, maximum_of, total_of, grad_of, dot_of = parts
        rows_of = AttentionRows(logit_of, maximum_of, total_of, grad_of, dot_of, torch.zeros_like(logit_of))
        stages, push = block.stages(attention.edge_set), exchange.push(width + num_heads, x)
        for step, rows in enumerate(exchange.arrivals(x[:, : width + num_heads])):
            gradients = None
            if rows is not None:
                edges, logits, arrived = stages[step], rows[:, width:], rows[:, :width]
                reads = edges.csr, logits, arrived, attention.slope, masks[step]
                with exchange.computing():
                    of_sources = attend_backward(AttentionStage(*reads), edges.transposed, rows_of)
                gradients = torch.cat(of_sources, dim=1)
            push.step(gradients)
        grad_arrived, grad_logit_target = push.finish(), exchange.reduce(rows_of.grad_of_targets)
        if block.target_index is not None:
            grad_all_rows = x.new_zeros(len(x), num_heads)
            grad_logit_target = grad_all_rows.index_copy_(0, block.target_index, grad_logit_target)
        return torch.cat([grad_arrived, grad_logit_target], dim=1), None, None


def at_all_targets(block: Block, parts: list[Tensor]) -> list[Tensor]:
    """The rows of all targets of the block row, contiguous, of tensors with a row for each own target, which travel
    side by side."""
    if not block.exchange.joins_targets:
        return [part.contiguous() for part in parts]
    rows = block.exchange.gather_targets(torch.cat(parts, dim=1))
    return [part.contiguous() for part in rows.split([part.shape[1] for part in parts], dim=1)]


def join_states(state: SoftmaxState, block: Block) -> SoftmaxState:
    """The state of this rank's own targets, from what each replica has found for all targets of the block row."""
    exchange, num_heads = block.exchange, state.maximum.shape[1]
    if not exchange.joins_targets:
        return state
    part = state.rebased(exchange.maximum(state.maximum))
    sums = exchange.reduce(torch.cat([part.total, part.weighted], dim=1))
    return SoftmaxState(part.maximum[exchange.own].contiguous(), sums[:, :num_heads].contiguous(), sums[:, num_heads:])
