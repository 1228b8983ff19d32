"""Attention over the neighbours of each target, distributed: stage by stage, and joined over the replicas.

    forward    the rows x_j arrive stage by stage, in static attention with their logits, and are added to the state of
               a softmax (largest logit, sum of weights, weighted sum of rows); the replicas join their states
    backward   the rows arrive again; logits and weights are computed again; gradients at the rows travel home stage by
               stage

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
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.nn.dropout import Dropout
from fullgnn.schemes.block import Block


@dataclass(frozen=True, eq=False)
class Attention:
    """One of the two attentions of ``kernels/edges/attention.py`` over the edges of a block.

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

    def __call__(self, x: Tensor, block: Block) -> Tensor:
        """Return the sums of the sources' rows, weighted by static attention: (num_sources, K * D + 2 K) to
        (num_own_targets, K * D).

        Args:
            x: the rows, then the K logits that each row has as a source, then the K that it has as a target.
        """
        return _Attend.apply(x, None, None, self, block)

    def dynamic(self, x: Tensor, x_target: Tensor, vector: Tensor, block: Block) -> Tensor:
        """Return the sums of the sources' rows, weighted by dynamic attention: (num_own_targets, K * D).

        Args:
            x: (num_sources, K * D) own rows, as sources.
            x_target: (num_own_targets, K * D) rows of the own targets, which enter the logits alone.
            vector: (K, D).
        """
        return _Attend.apply(x, x_target, vector, self, block)

    def masks(self, block: Block) -> list[EdgeMask | None]:
        """The dropout of each stage of this rank."""
        drop = self.dropout
        if drop is None or not drop.training or drop.p == 0:
            return [None] * len(block.stages(self.edge_set))
        target_id, source_ids = block.target_id, block.stage_source_id  # every rank takes part in the first use
        return [EdgeMask(target_id, ids, drop.p, drop.seed, drop.epoch, drop.layer) for ids in source_ids]

    def stage(self, csr: LocalCSR, rows: Tensor, vector: Tensor | None, mask: EdgeMask | None) -> AttentionStage:
        """A stage whose ``rows`` have arrived; without a ``vector``, they end with their logits."""
        if vector is not None:
            return AttentionStage(csr, vector, rows, self.slope, mask, dynamic=True)
        width = rows.shape[1] - self.num_heads
        return AttentionStage(csr, rows[:, width:], rows[:, :width], self.slope, mask)


class _Attend(torch.autograd.Function):
    """Dynamic attention if there is a ``vector``, else static attention, whose logits of the targets are in ``x``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, x_target: Tensor | None, vector: Tensor | None, attention: Attention, block: Block
    ) -> Tensor:
        x, exchange, num_heads = x.detach(), block.exchange, attention.num_heads
        if x_target is None or vector is None:
            width = x.shape[1] - 2 * num_heads
            of_targets = block.at_targets(x[:, width + num_heads :]).contiguous()
            sent = x[:, : width + num_heads]
        else:
            width, of_targets, vector, sent = x.shape[1], x_target.detach().contiguous(), vector.detach(), x
        masks, stages = attention.masks(block), block.stages(attention.edge_set)
        all_targets = exchange.gather_targets(of_targets)
        state = SoftmaxState.empty(len(all_targets), num_heads, width, x)
        for step, rows in enumerate(exchange.arrivals(sent)):
            if rows is not None:
                with exchange.computing():  # no copy of the logits lives longer
                    attend(attention.stage(stages[step].csr, rows, vector, masks[step]), all_targets, state)
        joined = join_states(state, block)
        out = joined.finish()
        ctx.save_for_backward(x, vector, out, of_targets, joined.maximum, joined.total)
        ctx.attention, ctx.block, ctx.masks = attention, block, masks
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        attention, block, masks, exchange = ctx.attention, ctx.block, ctx.masks, ctx.block.exchange
        x, vector, out, of_targets, maximum, total = ctx.saved_tensors
        sent = x if vector is not None else x[:, : out.shape[1] + attention.num_heads]
        dot = (by_head(grad, total) * by_head(out, total)).sum(2)
        of_all, *others = at_all_targets(block, [of_targets, maximum, total, grad, dot])
        sums = [torch.zeros_like(of_all) for _ in range(1 if vector is None else 2)]
        rows_of = AttentionRows(of_all, *others, *sums)
        stages, push = block.stages(attention.edge_set), exchange.push(sent.shape[1], x)
        for step, rows in enumerate(exchange.arrivals(sent)):
            gradient = None
            if rows is not None:
                edges = stages[step]
                reads = edges.csr, rows, vector, masks[step]
                with exchange.computing():
                    gradients = attend_backward(attention.stage(*reads), edges.transposed, rows_of)
                gradient = gradients[0] if len(gradients) == 1 else torch.cat(gradients, dim=1)
            push.step(gradient)
        grad_vector = None if vector is None else exchange.sum_partial(rows_of.vector_gradient())
        grad_sent, grad_of_targets = push.finish(), exchange.reduce(rows_of.grad_of_targets)
        if vector is not None:
            return grad_sent, grad_of_targets, grad_vector, None, None
        if block.target_index is not None:
            grad_all_rows = x.new_zeros(len(x), attention.num_heads)
            grad_of_targets = grad_all_rows.index_copy_(0, block.target_index, grad_of_targets)
        return torch.cat([grad_sent, grad_of_targets], dim=1), None, None, None, None


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
