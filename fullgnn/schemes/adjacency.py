"""The adjacency that a model sees: a product and its transpose as one differentiable ``spmm``."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.schemes.base import ShardedAdjacency
from fullgnn.schemes.operator import Operator


class Adjacency:
    """A ``ShardedAdjacency`` built from two operators: A (or only its rows with loss) and the transpose."""

    def __init__(
        self,
        forward: Operator,
        backward: Operator,
        node_id: Tensor,
        row_index: Tensor | None,
        output: ShardedAdjacency | None = None,
    ):
        self.multiply, self.multiply_t = forward, backward
        self.input_scale, self.gradient_scale = forward.input_scale, backward.input_scale
        self.node_id, self.row_index = node_id, row_index
        self.output: ShardedAdjacency = self if output is None else output

    def tensors(self) -> list[Tensor]:
        """See ``ShardedAdjacency``."""
        index = [] if self.row_index is None else [self.row_index]
        return [self.node_id, *index, *self.multiply.tensors(), *self.multiply_t.tensors()]

    def release(self) -> None:
        """See ``ShardedAdjacency``."""
        self.multiply.exchange.release()
        self.multiply_t.exchange.release()

    def spmm(self, x: Tensor) -> Tensor:
        """Map (num_local_nodes, F) rows of X to (num_local_rows, F) rows of A @ X."""
        return _SpMM.apply(x, self)


class _SpMM(torch.autograd.Function):
    """Y = A X. The gradient of X is A^T times the gradient of Y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adj: Adjacency) -> Tensor:
        ctx.adj = adj
        return adj.multiply(x.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.adj.multiply_t(grad), None
