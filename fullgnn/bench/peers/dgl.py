"""DGL with int32 ids; both of its sparse formats are made beforehand."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.peers.torch_sparse import Product
from fullgnn.bench.peers.training import TwoLayers
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


SPMM = {"DGL update_all": update_all}
MODELS = {"DGL GraphConv": graph_conv}
