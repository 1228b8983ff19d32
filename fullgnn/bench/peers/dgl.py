"""DGL with int32 ids; both of its sparse formats are made beforehand."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.peers.torch_sparse import Product
from fullgnn.bench.peers.training import Models, TwoLayers
from fullgnn.bench.problem import Problem
from fullgnn.errors import UnsupportedError

_WIDEST = 512
"""Largest number of columns for which DGL's libxsmm product works; beyond, it ends the process (seen at 602 with
1.1.3)."""


def dgl_graph(problem: Problem) -> Any:
    """A + I as a DGLGraph on the device of ``problem``."""
    import dgl

    indptr, indices = problem.indptr.cpu(), problem.indices.cpu()
    edges = ("csc", (indptr, indices, torch.empty(0, dtype=torch.int32)))
    graph = dgl.graph(edges, num_nodes=problem.num_nodes, idtype=torch.int32).formats(["csc", "csr"])
    graph.create_formats_()
    device = problem.indptr.device
    return graph if device.type == "cpu" else graph.to(device)


def refuse_wide(width: int, device: torch.device) -> None:
    """Raise UnsupportedError for a product that would end the process."""
    if width > _WIDEST and device.type == "cpu":
        raise UnsupportedError(f"DGL's libxsmm product crashes at width {width}, above {_WIDEST}: not run")


def update_all(problem: Problem) -> Product:
    graph = dgl_graph(problem)
    import dgl.function as fn

    def multiply(x: Tensor) -> Tensor:
        refuse_wide(x.shape[1], x.device)
        with graph.local_scope():
            graph.srcdata["h"] = x
            graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
            return graph.dstdata["out"]

    return multiply


def graph_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two layers of ``GraphConv``."""
    graph = dgl_graph(problem)
    from dgl.nn.pytorch import GraphConv

    for weight in weights:
        refuse_wide(min(weight.shape), problem.indptr.device)  # the product takes the narrower side
    convs = [GraphConv(*weight.shape, norm="both") for weight in weights]
    return TwoLayers(problem, weights, convs, call=lambda conv, h: conv(graph, h))


def gat_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two layers of ``GATConv``, with ELU between them; the last one has one head."""
    import dgl
    from dgl.nn.pytorch import GATConv

    source, target = problem.indices, problem.targets.int()  # without edge ids, its product with edge values fails
    graph = dgl.graph((source, target), num_nodes=problem.num_nodes, idtype=torch.int32)
    graph.create_formats_()

    (features, hidden), (heads, per_head), _, (_, classes), *_ = (weight.shape for weight in weights)
    convs = [GATConv(features, per_head, heads), GATConv(hidden, classes, 1)]

    def matrices_of(conv: GATConv) -> list[Tensor]:
        return [conv.fc.weight.T, conv.attn_l[0], conv.attn_r[0]]

    def call(conv: GATConv, h: Tensor) -> Tensor:
        return conv(graph, h).flatten(1)  # (num_nodes, heads, columns): the heads side by side

    return TwoLayers(problem, weights, convs, matrices_of, call, activation=F.elu)


SPMM = {"DGL update_all": update_all}
MODELS: Models = {"gcn": {"DGL GraphConv": graph_conv}, "gat": {"DGL GATConv": gat_conv}}
