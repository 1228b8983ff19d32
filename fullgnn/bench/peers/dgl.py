"""DGL with int32 ids, both sparse formats made beforehand."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.peers.torch_sparse import Product
from fullgnn.bench.peers.training import trainer
from fullgnn.bench.problem import Problem
from fullgnn.errors import UnsupportedError

_WIDEST = 512
"""Columns up to which DGL's libxsmm product works; beyond, it ends the process (seen at 602 with 1.1.3)."""


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


def graph_conv(problem: Problem, weights: list[Tensor]) -> Callable[[], float]:
    graph = dgl_graph(problem)
    from dgl.nn.pytorch import GraphConv

    for weight in weights:
        refuse_wide(min(weight.shape), problem.indptr.device)  # the product takes the narrower side
    convs: Any = torch.nn.ModuleList(GraphConv(*weight.shape, norm="both") for weight in weights)
    convs = convs.to(problem.features.device)
    with torch.no_grad():
        for conv, weight in zip(convs, weights):
            conv.weight.copy_(weight)

    def forward() -> Tensor:
        return convs[1](graph, F.relu(convs[0](graph, problem.features)))

    return trainer(convs.parameters(), forward, problem)


SPMM: dict[str, Callable[[Problem], Product]] = {"DGL update_all": update_all}
EPOCH: dict[str, Callable[[Problem, list[Tensor]], Callable[[], float]]] = {"DGL GraphConv": graph_conv}
