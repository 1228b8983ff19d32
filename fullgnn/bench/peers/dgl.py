"""DGL with int32 ids; both of its sparse formats are made beforehand."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.models import DEPTH, HOPS, WALK
from fullgnn.bench.peers.torch_sparse import Product
from fullgnn.bench.peers.training import Models, Peer, attention, gcnii, mlp, of_linears, two_layers
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
    """DGL's ``update_all`` with a copy and a sum as the product (A + I) X."""
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
    return two_layers(problem, weights, convs, call=lambda conv, h: conv(graph, h))


def graph_with_edge_ids(problem: Problem) -> Any:
    """A + I as a DGLGraph with edge ids, without which its product with edge values fails."""
    import dgl

    graph = dgl.graph((problem.indices, problem.targets.int()), num_nodes=problem.num_nodes, idtype=torch.int32)
    graph.create_formats_()
    return graph


def side_by_side(graph: Any) -> Callable[[Any, Tensor], Tensor]:
    """(convolution, h) -> its results (num_nodes, heads, columns) with the heads side by side."""
    return lambda conv, h: conv(graph, h).flatten(1)


def gat_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two layers of ``GATConv``."""
    graph = graph_with_edge_ids(problem)
    from dgl.nn.pytorch import GATConv

    def matrices_of(conv: GATConv) -> list[Tensor]:
        return [conv.fc.weight.T, conv.attn_l[0], conv.attn_r[0]]

    return attention(problem, weights, GATConv, weights[1], matrices_of, side_by_side(graph))


def gatv2_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two layers of ``GATv2Conv``.

    DGL adds no bias to a layer's result, so that from the second epoch on its losses are similar, not equal.
    """
    graph = graph_with_edge_ids(problem)
    from dgl.nn.pytorch import GATv2Conv

    def matrices_of(conv: GATv2Conv) -> list[Tensor]:
        return [conv.attn[0], conv.fc_src.weight.T, conv.fc_dst.weight.T]

    return attention(problem, weights, GATv2Conv, weights[0], matrices_of, side_by_side(graph))


def sage_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two layers of ``SAGEConv`` with the mean."""
    graph = dgl_graph(problem.without_loops)
    from dgl.nn.pytorch import SAGEConv

    for weight in weights:
        refuse_wide(min(weight.shape), problem.indptr.device)  # the product takes the narrower side
    convs = [SAGEConv(*weight.shape, "mean") for weight in weights[::2]]
    pair = ("fc_neigh", "fc_self")
    return two_layers(
        problem,
        weights,
        convs,
        lambda conv: of_linears(getattr(conv, name) for name in pair),
        lambda conv, h: conv(graph, h),
    )


def gin_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two layers of ``GINConv`` with an MLP of two layers."""
    graph = dgl_graph(problem.without_loops)
    from dgl.nn.pytorch import GINConv

    for weight in weights:
        refuse_wide(weight.shape[0], problem.indptr.device)
    convs = [GINConv(mlp(*pair), "sum") for pair in zip(weights[::2], weights[1::2])]
    return two_layers(problem, weights, convs, lambda conv: of_linears(conv.apply_func), lambda conv, h: conv(graph, h))


def sg_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """``SGConv``, which keeps the propagated features."""
    graph = dgl_graph(problem)
    from dgl.nn.pytorch import SGConv

    refuse_wide(weights[0].shape[0], problem.indptr.device)
    convs = [SGConv(*weights[0].shape, k=HOPS, cached=True)]
    return Peer(problem, weights, convs, lambda convs: [convs[0].fc.weight.T], lambda convs, x: convs[0](graph, x))


def appnp(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two dense layers and ``APPNPConv``."""
    graph = dgl_graph(problem)
    from dgl.nn.pytorch import APPNPConv

    walk = APPNPConv(WALK, 0.1)
    return Peer(
        problem, weights, mlp(*weights), of_linears, lambda layers, x: walk(graph, torch.nn.Sequential(*layers)(x))
    )


def gcn2_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Layers of ``GCN2Conv`` between two dense layers."""
    graph, hidden = dgl_graph(problem), weights[0].shape[1]
    from dgl.nn.pytorch import GCN2Conv

    convs = [GCN2Conv(hidden, layer, alpha=0.1, lambda_=0.5, bias=False) for layer in range(1, DEPTH + 1)]
    return gcnii(problem, weights, convs, lambda layer, h, initial: layer(graph, h, initial))


SPMM = {"DGL update_all": update_all}
MODELS: Models = {
    "gcn": {"DGL GraphConv": graph_conv},
    "sage": {"DGL SAGEConv": sage_conv},
    "gin": {"DGL GINConv": gin_conv},
    "gat": {"DGL GATConv": gat_conv},
    "gatv2": {"DGL GATv2Conv": gatv2_conv},
    "sgc": {"DGL SGConv": sg_conv},
    "appnp": {"DGL APPNPConv": appnp},
    "gcnii": {"DGL GCN2Conv": gcn2_conv},
}
"""Not those that DGL has no layer of, and not ``sage-max``, whose layer has one more matrix in DGL."""
