"""PyTorch Geometric. Its advice for speed: a sparse adjacency instead of ``edge_index``, and ``cached=True``.

It takes torch's CSR (int32 indices: faster than int64 here) or, where torch_sparse is installed, ``SparseTensor``.
``edge_index`` gathers one row an edge, so it is left out where that would not fit into memory.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.environment import available_memory
from fullgnn.bench.peers.torch_sparse import Product, unweighted
from fullgnn.bench.peers.training import trainer
from fullgnn.bench.problem import Problem
from fullgnn.errors import UnsupportedError

Form = Callable[[Problem], Any]


def torch_csr(problem: Problem) -> Tensor:
    return unweighted(problem)


def sparse_tensor(problem: Problem) -> Any:
    from torch_sparse import SparseTensor

    shape = (problem.num_nodes, problem.num_nodes)
    return SparseTensor(rowptr=problem.indptr.long(), col=problem.indices.long(), sparse_sizes=shape, is_sorted=True)


def edge_index(problem: Problem) -> Tensor:
    """(2, nnz) int64, sorted by target."""
    messages = 4 * problem.nnz * max(problem.hidden, problem.graph.num_classes)  # bytes, of one layer
    if 4 * messages > available_memory(problem.features.device):
        raise UnsupportedError(
            f"its messages of {messages / 1e9:.1f} GB a layer, held four times, do not fit in memory"
        )
    nodes = torch.arange(problem.num_nodes, device=problem.indptr.device)
    target = nodes.repeat_interleave(problem.indptr.diff().long())
    return torch.stack([problem.indices.long(), target])


def spmm(problem: Problem, form: Form) -> Product:
    from torch_geometric.utils import spmm

    adj = form(problem)
    return lambda x: spmm(adj, x, "sum")


def gcn_conv(problem: Problem, weights: list[Tensor], form: Form) -> Callable[[], float]:
    from torch_geometric.nn import GCNConv

    adj = form(problem)
    convs: Any = torch.nn.ModuleList(
        GCNConv(*weight.shape, cached=True, add_self_loops=False)
        for weight in weights  # the loops are stored
    ).to(problem.features.device)
    with torch.no_grad():
        for conv, weight in zip(convs, weights):
            conv.lin.weight.copy_(weight.T)

    def forward() -> Tensor:
        return convs[1](F.relu(convs[0](problem.features, adj)), adj)

    return trainer(convs.parameters(), forward, problem)


SPMM: dict[str, Callable[[Problem], Product]] = {
    "PyG spmm (torch CSR)": functools.partial(spmm, form=torch_csr),
    "PyG spmm (SparseTensor)": functools.partial(spmm, form=sparse_tensor),
}
EPOCH: dict[str, Callable[[Problem, list[Tensor]], Callable[[], float]]] = {
    "PyG GCNConv (torch CSR)": functools.partial(gcn_conv, form=torch_csr),
    "PyG GCNConv (SparseTensor)": functools.partial(gcn_conv, form=sparse_tensor),
    "PyG GCNConv (edge_index)": functools.partial(gcn_conv, form=edge_index),
}
