"""PyTorch's own sparse tensors: CSR with int32 indices, which MKL takes as they are and int64 costs more."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.models import LIGHT_LAYERS
from fullgnn.bench.peers.training import Models, Peer, PeerLayer, stacked
from fullgnn.bench.problem import Problem

PlainProduct = Callable[[Tensor], Tensor]
Multiply = Callable[[Tensor, Tensor], Tensor]
"""(adj, x) -> adj @ x, differentiable in x."""


def csr(problem: Problem, values: Tensor) -> Tensor:
    """(n, n) torch CSR of A + I with ``values``, (nnz,)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # "beta state", "invariant checks"
        return torch.sparse_csr_tensor(
            problem.block.indptr, problem.block.indices, values, (problem.graph.num_nodes,) * 2
        )


def unweighted(problem: Problem) -> Tensor:
    """A + I, all entries 1."""
    return csr(problem, torch.ones(problem.block.nnz, device=problem.features.device))


def normalized(problem: Problem) -> Tensor:
    """D^-1/2 (A + I) D^-1/2."""
    degree = problem.block.indptr.diff()
    scale = degree.float().rsqrt()
    return csr(problem, scale.repeat_interleave(degree.long()) * scale[problem.block.indices.long()])


class _Symmetric(torch.autograd.Function):
    """Y = A X for A = A^T: the gradient is the same product, which autograd cannot know."""

    @staticmethod
    def forward(ctx: Any, adj: Tensor, x: Tensor) -> Tensor:
        ctx.adj = adj
        return adj @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.adj @ grad


symmetric: Multiply = _Symmetric.apply
"""``adj @ x``, differentiable, for a symmetric ``adj``."""


class Conv(torch.nn.Module):
    """A graph convolution by hand; its bias starts at 0.

    Args:
        order: ``(AH)W``, as the formula is read; ``A(HW)``, cheaper where W narrows; ``(AX)W``, where the input is A X,
            which was computed beforehand.
    """

    def __init__(self, shape: torch.Size, adj: Tensor, multiply: Multiply, order: str):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(shape))
        self.bias = torch.nn.Parameter(torch.zeros(shape[1]))
        self.adj, self.multiply, self.order = adj, multiply, order

    def forward(self, h: Tensor) -> Tensor:
        if self.order == "A(HW)":
            return self.multiply(self.adj, h @ self.weight) + self.bias
        aggregated = h if self.order == "(AX)W" else self.multiply(self.adj, h)
        return torch.addmm(self.bias, aggregated, self.weight)


def gcn(problem: Problem, weights: list[Tensor], multiply: Multiply, order: str, dropout: float = 0.0) -> Peer:
    """A two-layer GCN.

    Args:
        order: that of both layers, or of the first and of the second; see :class:`Conv`.
    """
    adj, orders = normalized(problem), order.split()
    of_layers = iter((orders[0], orders[-1]))
    layer = PeerLayer(lambda _, weight: Conv(weight.shape, adj, multiply, next(of_layers)), ["weight"])
    model = stacked(layer, None, problem, weights, lambda conv, h: conv(h), dropout)
    if orders[0] == "(AX)W":
        model.features = multiply(adj, problem.features)
    return model


class LightGCN(torch.nn.Module):
    """The mean of the trainable vectors, which start from ``weights``, and of their products with A, which has no
    self-loops; () -> (num_nodes, channels)."""

    def __init__(self, problem: Problem, weights: list[Tensor], multiply: Multiply):
        super().__init__()
        self.table = torch.nn.Parameter(weights[0].clone())
        self.adj, self.multiply = normalized(problem.without_loops), multiply

    def forward(self) -> Tensor:
        powers: list[Tensor] = [self.table]
        for _ in range(LIGHT_LAYERS):
            powers.append(self.multiply(self.adj, powers[-1]))
        return functools.reduce(torch.add, powers) / (LIGHT_LAYERS + 1)


REDUCE = functools.partial(torch.sparse.mm, reduce="sum")
SPMM = {
    "torch CSR @": lambda problem: functools.partial(torch.matmul, unweighted(problem)),
    "torch.sparse.mm sum": lambda problem: functools.partial(REDUCE, unweighted(problem)),
}
MODELS: Models = {
    "gcn": {
        "torch CSR (AH)W": functools.partial(gcn, multiply=torch.matmul, order="(AH)W"),
        "torch CSR A(HW)": functools.partial(gcn, multiply=torch.matmul, order="A(HW)"),
        "torch.sparse.mm sum A(HW)": functools.partial(gcn, multiply=REDUCE, order="A(HW)"),
        "torch CSR (AH)W + own backward": functools.partial(gcn, multiply=symmetric, order="(AH)W"),
        "torch CSR A(HW) + own backward": functools.partial(gcn, multiply=symmetric, order="A(HW)"),
        "torch CSR (AX)W A(HW) + own backward": functools.partial(gcn, multiply=symmetric, order="(AX)W A(HW)"),
    },
    "lightgcn": {
        "torch CSR": functools.partial(LightGCN, multiply=torch.matmul),
        "torch CSR + own backward": functools.partial(LightGCN, multiply=symmetric),
    },
}
