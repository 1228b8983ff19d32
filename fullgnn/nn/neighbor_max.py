"""The elementwise maximum of the neighbours' rows, distributed: stage by stage, and joined over the replicas.

forward    the rows x_j arrive stage by stage; a state keeps the largest products with edge weights and the sources
           that sent them; the replicas join their states
backward   no row arrives again: the winners tell where each gradient belongs, and gradients travel home stage by
           stage
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fullgnn.graph import EdgeSet
from fullgnn.kernels.edges.largest import largest_rows, largest_rows_backward
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.nn.edge_values import joined_maximum, own_maximum
from fullgnn.schemes.block import Block
from fullgnn.schemes.edges import Stage


def neighbor_max(x: Tensor, block: Block, edge_set: EdgeSet) -> Tensor:
    """Return max_j w_ij x_j over the neighbours j of each target i, column by column, differentiable.

    The weight w_ij of an edge is 1 in a graph without weights. Of equal products, the one from the lowest original id
    counts, and gets the gradient. Every rank calls this function.

    Args:
        x: (num_sources, F), own rows.

    Returns:
        (num_own_targets, F), 0 for a target without neighbours.
    """
    return _NeighborMax.apply(x, block, block.stages(edge_set))


class _NeighborMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, block: Block, stages: tuple[Stage, ...]) -> Tensor:
        x, ids = x.detach(), block.stage_source_id
        state = MaxState.empty(len(block.target_id), x.shape[1], x)
        for step, rows in enumerate(block.exchange.arrivals(x)):
            if rows is not None:
                with block.exchange.computing():
                    largest_rows(stages[step].csr, rows, ids[step], state)
        state = joined_maximum(state, block)
        ctx.block, ctx.stages = block, stages
        ctx.save_for_backward(state.winner)
        return own_maximum(state, block)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (winner,) = ctx.saved_tensors
        exchange, stages, ids = ctx.block.exchange, ctx.stages, ctx.block.stage_source_id
        grad_all = exchange.gather_targets(grad.contiguous())
        push = exchange.push(grad.shape[1], grad)
        for step in range(exchange.num_steps):
            gradient = None
            if step < len(stages):
                with exchange.computing():
                    gradient = _grad_rows(stages[step], ids[step], winner, grad_all)
            push.step(gradient)
        return push.finish(), None, None


def _grad_rows(stage: Stage, source_id: Tensor, winner: Tensor, grad: Tensor) -> Tensor:
    """(num_rows, F) gradient of the rows that arrive in ``stage``."""
    return largest_rows_backward(stage.csr, lambda: stage.transposed, source_id, winner, grad)
