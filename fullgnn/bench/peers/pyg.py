"""PyTorch Geometric. Its advice for speed: a sparse adjacency instead of ``edge_index``, and ``cached=True``.

It takes torch's CSR (int32 indices: faster than int64 here) or, where torch_sparse is installed, ``SparseTensor``.
``edge_index`` gathers one row for each edge, so it is missing where these rows would not fit into memory.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.peers.torch_sparse import Product
from fullgnn.bench.peers.torch_sparse import unweighted as torch_csr
from fullgnn.bench.peers.training import Models, TwoLayers
from fullgnn.bench.problem import Problem
from fullgnn.errors import UnsupportedError
from fullgnn.telemetry.machine import available_memory

Form = Callable[[Problem], Any]
"""Makes A + I as one of the types that PyG takes."""


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
    return _pairs(problem)


def sorted_edge_index(problem: Problem) -> Any:
    """PyG's ``EdgeIndex``, which knows its order and multiplies without messages."""
    from torch_geometric import EdgeIndex

    shape = (problem.num_nodes, problem.num_nodes)
    return EdgeIndex(_pairs(problem), sparse_size=shape, sort_order="col", is_undirected=True).fill_cache_()


def _pairs(problem: Problem) -> Tensor:
    """(2, nnz) int64: source and target of each edge, sorted by target."""
    return torch.stack([problem.indices.long(), problem.targets])


def spmm(problem: Problem, form: Form) -> Product:
    from torch_geometric.utils import spmm

    adj = form(problem)
    return lambda x: spmm(adj, x, "sum")


def gcn_conv(problem: Problem, weights: list[Tensor], form: Form, dropout: float = 0.0) -> torch.nn.Module:
    """Two layers of ``GCNConv``."""
    from torch_geometric.nn import GCNConv

    adj = form(problem)
    convs = [GCNConv(*weight.shape, cached=True, add_self_loops=False) for weight in weights]  # the loops are in A + I
    matrices_of, call = lambda conv: [conv.lin.weight.T], lambda conv, h: conv(h, adj)
    return TwoLayers(problem, weights, convs, matrices_of, call, dropout)


def gat_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two layers of ``GATConv``, with ELU between them; the last one has one head."""
    from torch_geometric.nn import GATConv

    edges = edge_index(problem)
    (features, hidden), (heads, per_head), _, (_, classes), *_ = (weight.shape for weight in weights)
    convs = [
        GATConv(features, per_head, heads, add_self_loops=False),  # the loops are in A + I
        GATConv(hidden, classes, heads=1, add_self_loops=False),
    ]

    def matrices_of(conv: GATConv) -> list[Tensor]:
        return [conv.lin.weight.T, conv.att_src[0], conv.att_dst[0]]

    return TwoLayers(problem, weights, convs, matrices_of, lambda conv, h: conv(h, edges), activation=F.elu)


SPMM = {
    "PyG spmm (torch CSR)": functools.partial(spmm, form=torch_csr),
    "PyG spmm (SparseTensor)": functools.partial(spmm, form=sparse_tensor),
}
MODELS: Models = {
    "gcn": {
        "PyG GCNConv (torch CSR)": functools.partial(gcn_conv, form=torch_csr),
        "PyG GCNConv (SparseTensor)": functools.partial(gcn_conv, form=sparse_tensor),
        "PyG GCNConv (edge_index)": functools.partial(gcn_conv, form=edge_index),
    },
    "gat": {"PyG GATConv (edge_index)": gat_conv},
}
