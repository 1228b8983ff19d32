"""Dynamic attention over the neighbours of each target, distributed: stage by stage, and joined over the replicas.

    forward    the rows x_j arrive stage by stage and are added to the state of a softmax (largest logit, sum of
               weights, weighted sum of rows); the replicas join their states
    backward   the rows arrive again; the logits and weights are computed again; gradients at the rows travel home stage
               by stage

No rank holds the rows of more than two stages, and nothing is kept for an edge.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fullgnn.kernels.edges.attention import attend, attend_backward
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.softmax_state import SoftmaxState, by_head
from fullgnn.nn.attention import AttentionBase, at_all_targets, join_states
from fullgnn.schemes.block import Block


@dataclass(frozen=True, eq=False)
class DynamicAttention(AttentionBase):
    """The attention of Brody, Alon and Yahav (2022), equation 7, over the edges of a block."""

    def __call__(self, x: Tensor, x_target: Tensor, vector: Tensor, block: Block) -> Tensor:
        """Return the sums of the sources' rows, weighted by attention: (num_own_targets, K * D).

        Args:
            x: (num_sources, K * D) own rows, as sources.
            x_target: (num_own_targets, K * D) rows of the own targets, which enter the logits alone.
            vector: (K, D).
        """
        return _AttendDynamic.apply(x, x_target, vector, self, block)


class _AttendDynamic(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, x_target: Tensor, vector: Tensor, attention: DynamicAttention, block: Block
    ) -> Tensor:
        x, x_target, vector, exchange = x.detach(), x_target.detach().contiguous(), vector.detach(), block.exchange
        masks, stages = attention.masks(block), block.stages(attention.edge_set)
        all_targets = exchange.gather_targets(x_target)
        state = SoftmaxState.empty(len(all_targets), attention.num_heads, x.shape[1], x)
        for step, rows in enumerate(exchange.arrivals(x)):
            if rows is not None:
                reads = stages[step].csr, vector, rows, attention.slope, masks[step]
                with exchange.computing():
                    attend(AttentionStage(*reads, dynamic=True), all_targets, state)
        joined = join_states(state, block)
        out = joined.finish()
        ctx.save_for_backward(x, x_target, vector, out, joined.maximum, joined.total)
        ctx.attention, ctx.block, ctx.masks = attention, block, masks
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        attention, block, masks, exchange = ctx.attention, ctx.block, ctx.masks, ctx.block.exchange
        x, x_target, vector, out, maximum, total = ctx.saved_tensors
        width = out.shape[1]
        dot = (by_head(grad, total) * by_head(out, total)).sum(2)
        parts = at_all_targets(block, [x_target, maximum, total, grad, dot])
        x_target_of, maximum_of, total_of, grad_of, dot_of = parts
        sums = (torch.zeros_like(x_target_of), torch.zeros_like(x_target_of))
        rows_of = AttentionRows(x_target_of, maximum_of, total_of, grad_of, dot_of, *sums)
        stages, push = block.stages(attention.edge_set), exchange.push(width, x)
        for step, rows in enumerate(exchange.arrivals(x)):
            gradient = None
            if rows is not None:
                edges = stages[step]
                reads = edges.csr, vector, rows, attention.slope, masks[step]
                with exchange.computing():
                    (gradient,) = attend_backward(AttentionStage(*reads, dynamic=True), edges.transposed, rows_of)
            push.step(gradient)
        grad_vector = exchange.sum_partial(rows_of.vector_gradient())
        return push.finish(), exchange.reduce(rows_of.grad_of_targets), grad_vector, None, None
