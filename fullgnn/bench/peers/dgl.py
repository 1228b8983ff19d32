"""DGL with int32 ids; both of its sparse formats are made beforehand."""

import functools
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.config import HOPS, WALK
from fullgnn.bench.peers.training import OF_MLP, Models, PeerLayer, PlainProduct, after_mlp, gcnii, mlp
from fullgnn.bench.problem import Problem
from fullgnn.errors import UnsupportedError

_WIDEST = 512
"""Largest number of columns for which DGL's libxsmm product works; beyond, it ends the process (seen at 602 with
1.1.3)."""


def dgl_graph(problem: Problem) -> Any:
    """A + I as a DGLGraph on the device of ``problem``."""
    import dgl

    indptr, indices = problem.block.indptr.cpu(), problem.block.indices.cpu()
    edges = ("csc", (indptr, indices, torch.empty(0, dtype=torch.int32)))
    graph = dgl.graph(edges, num_nodes=problem.graph.num_nodes, idtype=torch.int32).formats(["csc", "csr"])
    graph.create_formats_()
    device = problem.features.device
    return graph if device.type == "cpu" else graph.to(device)


def refuse_wide(width: int, device: torch.device) -> None:
    """Raise UnsupportedError for a product that would end the process."""
    if width > _WIDEST and device.type == "cpu":
        raise UnsupportedError(f"DGL's libxsmm product crashes at width {width}, above {_WIDEST}: not run")


def update_all(problem: Problem) -> PlainProduct:
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


def graph_with_edge_ids(problem: Problem) -> Any:
    """A + I as a DGLGraph with edge ids, without which its product with edge values fails."""
    import dgl

    graph = dgl.graph(tuple(problem.pairs.int()), num_nodes=problem.graph.num_nodes, idtype=torch.int32)
    graph.create_formats_()
    return graph


def model(
    layer: PeerLayer, problem: Problem, weights: list[Tensor], width: Callable[[torch.Size], int] = lambda shape: 0
) -> torch.nn.Module:
    """The model of a layer.

    Args:
        width: the shape of a weight matrix -> number of columns that DGL multiplies by the graph.
    """
    graph = (graph_with_edge_ids if layer.attends else dgl_graph)(problem if layer.loops else problem.without_loops)
    import dgl.nn.pytorch as library

    for weight in weights:
        refuse_wide(width(weight.shape), problem.features.device)
    # The results of several heads come in a dimension of their own.
    return layer.model(layer, library, problem, weights, lambda conv, *h: conv(graph, *h).flatten(1))


SPMM = {"DGL update_all": update_all}
GCN = PeerLayer(lambda nn, weight: nn.GraphConv(*weight.shape, norm="both"), ["weight"])
SAGE = PeerLayer(
    lambda nn, weight, _: nn.SAGEConv(*weight.shape, "mean"), ["fc_neigh.weight.T", "fc_self.weight.T"], loops=False
)
GIN = PeerLayer(lambda nn, *pair: nn.GINConv(mlp(*pair), "sum"), [f"apply_func.{path}" for path in OF_MLP], loops=False)
GAT = PeerLayer(
    lambda nn, weight, heads, _: nn.GATConv(len(weight), heads.shape[1], len(heads)),
    ["fc.weight.T", "attn_l", "attn_r"],
    attends=True,
)
GATV2 = PeerLayer(
    lambda nn, heads, weight, _: nn.GATv2Conv(len(weight), heads.shape[1], len(heads)),
    ["attn", "fc_src.weight.T", "fc_dst.weight.T"],
    attends=True,
)
"""DGL adds no bias to the result of such a layer, so that from the second epoch on its losses are similar, not
equal."""
SGC = PeerLayer(lambda nn, weight: nn.SGConv(*weight.shape, k=HOPS, cached=True), ["fc.weight.T"])
APPNP = PeerLayer(lambda nn: nn.APPNPConv(WALK, 0.1), model=after_mlp)
GCN2 = PeerLayer(
    lambda nn, hidden, number: nn.GCN2Conv(hidden, number, alpha=0.1, lambda_=0.5, bias=False), model=gcnii
)
MODELS: Models = {
    "gcn": {"DGL GraphConv": functools.partial(model, GCN, width=min)},  # the product takes the narrower side
    "sage": {"DGL SAGEConv": functools.partial(model, SAGE, width=min)},
    "gin": {"DGL GINConv": functools.partial(model, GIN, width=itemgetter(0))},
    "gat": {"DGL GATConv": functools.partial(model, GAT)},
    "gatv2": {"DGL GATv2Conv": functools.partial(model, GATV2)},
    "sgc": {"DGL SGConv": functools.partial(model, SGC, width=itemgetter(0))},
    "appnp": {"DGL APPNPConv": functools.partial(model, APPNP)},
    "gcnii": {"DGL GCN2Conv": functools.partial(model, GCN2)},
}
"""Not those that DGL has no layer of, and not ``sage-max``, whose layer has one more matrix in DGL."""
