"""PyTorch's own sparse tensors: CSR with int32 indices, which MKL takes as they are and int64 costs more."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.peers.training import trainer
from fullgnn.bench.problem import Problem

Product = Callable[[Tensor], Tensor]


def csr(problem: Problem, values: Tensor) -> Tensor:
    """(n, n) torch CSR of A + I with ``values``, (nnz,)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # "beta state", "invariant checks"
        shape = (problem.num_nodes, problem.num_nodes)
        return torch.sparse_csr_tensor(problem.indptr, problem.indices, values, shape)


def unweighted(problem: Problem) -> Tensor:
    """A + I, all entries 1."""
    return csr(problem, torch.ones(problem.nnz, device=problem.indices.device))


def normalized(problem: Problem) -> Tensor:
    """D^-1/2 (A + I) D^-1/2."""
    degree = problem.indptr.diff()
    scale = degree.float().rsqrt()
    return csr(problem, scale.repeat_interleave(degree.long()) * scale[problem.indices.long()])


def spmm_csr(problem: Problem) -> Product:
    return functools.partial(torch.matmul, unweighted(problem))


def spmm_reduce(problem: Problem) -> Product:
    return functools.partial(_reduce, unweighted(problem))


def _reduce(adj: Tensor, x: Tensor) -> Tensor:
    return torch.sparse.mm(adj, x, "sum")


def symmetric(adj: Tensor, x: Tensor) -> Tensor:
    """``adj @ x``, differentiable, for a symmetric ``adj``."""
    return _Symmetric.apply(x, adj)


class _Symmetric(torch.autograd.Function):
    """Y = A X for A = A^T: the gradient is the same product, which autograd cannot know."""

    @staticmethod
    def forward(ctx, x: Tensor, adj: Tensor):
        ctx.adj = adj
        return adj @ x

    @staticmethod
    def backward(ctx, grad: Tensor):
        return ctx.adj @ grad, None


def gcn(
    problem: Problem,
    weights: list[Tensor],
    multiply: Callable,
    order: str,
    dropout: float = 0.0,
    train: Callable[..., Callable[[], Any]] = trainer,
) -> Callable[[], Any]:
    """The training, by ``train``, of a two-layer GCN by hand; the other arguments are those of :func:`gcn_forward`."""
    return train(*gcn_forward(problem, weights, multiply, order, dropout), problem)


def gcn_forward(
    problem: Problem, weights: list[Tensor], multiply: Callable, order: str, dropout: float = 0.0
) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """The parameters of a two-layer GCN, copies of ``weights`` and biases of 0, and its forward pass.

    Args:
        multiply: (adj, x) -> adj @ x, differentiable.
        order: ``(AH)W``, as the formula is read; ``A(HW)``, cheaper where W narrows; ``(AX)W A(HW)``, with the first
            layer's A X, which never changes, computed beforehand.
        dropout: rate on the hidden layer.

    Returns:
        the parameters, and a function that computes the (num_nodes, num_classes) logits from them.
    """
    device = problem.features.device
    adj = normalized(problem)
    ws = [torch.nn.Parameter(weight.to(device, copy=True)) for weight in weights]
    bs = [torch.nn.Parameter(torch.zeros(weight.shape[1], device=device)) for weight in weights]
    aggregated = multiply(adj, problem.features) if order.startswith("(AX)") else None

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.addmm(b, multiply(adj, x), w) if order == "(AH)W" else multiply(adj, x @ w) + b

    def forward() -> Tensor:
        first = layer(problem.features, ws[0], bs[0]) if aggregated is None else torch.addmm(bs[0], aggregated, ws[0])
        return layer(F.dropout(F.relu(first), dropout), ws[1], bs[1])

    return [*ws, *bs], forward


SPMM = {"torch CSR @": spmm_csr, "torch.sparse.mm sum": spmm_reduce}
EPOCH = {
    "torch CSR (AH)W": functools.partial(gcn, multiply=torch.matmul, order="(AH)W"),
    "torch CSR A(HW)": functools.partial(gcn, multiply=torch.matmul, order="A(HW)"),
    "torch.sparse.mm sum A(HW)": functools.partial(gcn, multiply=_reduce, order="A(HW)"),
    "torch CSR A(HW) + own backward": functools.partial(gcn, multiply=symmetric, order="A(HW)"),
    "torch CSR (AX)W A(HW) + own backward": functools.partial(gcn, multiply=symmetric, order="(AX)W A(HW)"),
}
