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

from fullgnn.bench.config import HOPS, LIGHT_LAYERS, POWERS, WALK
from fullgnn.bench.peers import training
from fullgnn.bench.peers.training import OF_MLP, Maker, Models, Peer, PeerLayer, PlainProduct, after_mlp, gcnii, mlp
from fullgnn.bench.problem import Problem
from fullgnn.errors import UnsupportedError
from fullgnn.telemetry.machine import available_memory

Form = Callable[[Problem], Any]
"""Makes A + I as one of the types that PyG takes."""


def sparse_tensor(problem: Problem) -> Any:
    """A + I as a ``torch_sparse.SparseTensor``."""
    from torch_sparse import SparseTensor

    rows, columns = problem.block.indptr.long(), problem.block.indices.long()
    return SparseTensor(rowptr=rows, col=columns, sparse_sizes=(problem.graph.num_nodes,) * 2, is_sorted=True)


def edge_index(problem: Problem, gathers_features: bool = False) -> Tensor:
    """(2, nnz) int64, sorted by target.

    Args:
        gathers_features: whether a message of the first layer has the columns of the features, before they are
            multiplied by weights.
    """
    columns = problem.widths if gathers_features else problem.widths[1:]
    messages_gb = 4e-9 * problem.block.nnz * max(columns)  # of one layer
    if 4e9 * messages_gb > available_memory(problem.features.device):
        raise UnsupportedError(f"its messages of {messages_gb:.1f} GB a layer, held four times, do not fit in memory")
    return problem.pairs


def sorted_edge_index(problem: Problem) -> Any:
    """PyG's ``EdgeIndex``, which knows its order and multiplies without messages."""
    from torch_geometric import EdgeIndex

    pairs = EdgeIndex(problem.pairs, sparse_size=(problem.graph.num_nodes,) * 2, sort_order="col", is_undirected=True)
    return pairs.fill_cache_()


def spmm(problem: Problem, form: Form) -> PlainProduct:
    """PyG's ``spmm`` as the product (A + I) X."""
    from torch_geometric.utils import spmm

    adj = form(problem)
    return lambda x: spmm(adj, x, "sum")


def model(layer: PeerLayer, problem: Problem, weights: list[Tensor], form: Form = edge_index, **options: float) -> Peer:
    """The model of a layer; with heads it takes ``edge_index`` alone."""
    import torch_geometric.nn as library

    adj = form(problem if layer.loops else problem.without_loops)
    return layer.model(layer, library, problem, weights, lambda conv, *h: conv(*h, adj), **options)


def powers(problem: Problem, weights: list[Tensor], form: Form) -> torch.nn.Module:
    """N-GCN: ``SGConv`` with each power, which keeps the propagated features, then dense layers and ``APPNP`` without
    restart, which propagates only, then a dense layer."""
    from torch_geometric.nn import APPNP, SGConv

    adj, scaled = form(problem), training.normalized(problem)
    first, second, last = weights[:POWERS], weights[POWERS:-1], weights[-1]
    convs = [SGConv(*weight.shape, K=k, cached=True, bias=False, **ALONE) for k, weight in enumerate(first)]
    dense = [torch.nn.Linear(len(weight), weight.shape[1], bias=False) for weight in (*second, last)]
    walks = [APPNP(k, 0.0, normalize=False) for k in range(POWERS)]

    def call(modules: Any, x: Tensor) -> Tensor:
        ways = zip(modules, modules[POWERS:], walks)
        outputs = [walk(linear(F.relu(conv(x, adj))), scaled) for conv, linear, walk in ways]
        return modules[-1](torch.cat(outputs, dim=1))

    matrices = [f"{k}.lin.weight.T" if k < POWERS else f"{k}.weight.T" for k in range(len(weights))]
    return Peer(problem, weights, [*convs, *dense], matrices, call)


def light_gcn(problem: Problem, weights: list[Tensor], form: Form) -> torch.nn.Module:
    """``LightGCN`` with the normalised adjacency, which has no self-loops."""
    from torch_geometric.nn import LightGCN

    (table,), problem = weights, problem.without_loops
    scaled, model = training.normalized(problem), LightGCN(*table.shape, num_layers=LIGHT_LAYERS, normalize=False)
    adj = (scaled,) if form is training.unweighted else (form(problem), scaled.values())
    with torch.no_grad():
        model.embedding.weight.copy_(table)
    model.forward = functools.partial(model.get_embedding, *adj)
    return model.to(table.device)


def forms(name: str, layer: PeerLayer | Maker, gathers_features: bool = False) -> dict[str, Maker]:
    """The methods of one layer, or of a maker of a model, by the type of the adjacency."""
    make = functools.partial(model, layer) if isinstance(layer, PeerLayer) else layer
    known = MATRICES | {"edge_index": functools.partial(edge_index, gathers_features=gathers_features)}
    return {f"PyG {name} ({kind})": functools.partial(make, form=form) for kind, form in known.items()}


MATRICES: dict[str, Form] = {"torch CSR": training.unweighted, "SparseTensor": sparse_tensor}
SPMM = {f"PyG spmm ({kind})": functools.partial(spmm, form=form) for kind, form in MATRICES.items()}
ALONE: dict[str, Any] = {"add_self_loops": False}  # the loops are in A + I
OF_SAGE = ("lin_l.weight.T", "lin_r.weight.T")
GCN = PeerLayer(lambda nn, weight: nn.GCNConv(*weight.shape, cached=True, **ALONE), ["lin.weight.T"])
SAGE = PeerLayer(lambda nn, weight, _: nn.SAGEConv(*weight.shape), OF_SAGE, loops=False)
SAGE_MAX = PeerLayer(lambda nn, weight, _: nn.SAGEConv(*weight.shape, aggr="max"), OF_SAGE, loops=False)
GIN = PeerLayer(lambda nn, *pair: nn.GINConv(mlp(*pair)), [f"nn.{path}" for path in OF_MLP], loops=False)
GAT = PeerLayer(
    lambda nn, weight, heads, _: nn.GATConv(len(weight), heads.shape[1], len(heads), **ALONE),
    ["lin.weight.T", "att_src", "att_dst"],
    attends=True,
)
GATV2 = PeerLayer(
    lambda nn, heads, weight, _: nn.GATv2Conv(len(weight), heads.shape[1], len(heads), **ALONE),
    ["att", *OF_SAGE],
    attends=True,
)
SGC = PeerLayer(lambda nn, weight: nn.SGConv(*weight.shape, K=HOPS, cached=True, **ALONE), ["lin.weight.T"])
APPNP = PeerLayer(lambda nn: nn.APPNP(WALK, 0.1, cached=True, **ALONE), model=after_mlp)
GCN2 = PeerLayer(
    lambda nn, hidden, number: nn.GCN2Conv(hidden, alpha=0.1, theta=0.5, layer=number, cached=True, **ALONE),
    model=gcnii,
)
MODELS: Models = {
    "gcn": forms("GCNConv", GCN) | {"PyG GCNConv (EdgeIndex)": functools.partial(model, GCN, form=sorted_edge_index)},
    "sage": forms("SAGEConv", SAGE, gathers_features=True),
    "sage-max": forms("SAGEConv max", SAGE_MAX, gathers_features=True),
    "gin": forms("GINConv", GIN, gathers_features=True),
    "gat": {"PyG GATConv (edge_index)": functools.partial(model, GAT)},
    "gatv2": {"PyG GATv2Conv (edge_index)": functools.partial(model, GATV2)},
    "sgc": forms("SGConv", SGC, gathers_features=True),
    "ngcn": forms("SGConv and APPNP", powers, gathers_features=True),
    "appnp": forms("APPNP", APPNP),
    "gcnii": forms("GCN2Conv", GCN2),
    "lightgcn": {
        "PyG LightGCN (torch CSR)": functools.partial(light_gcn, form=training.unweighted),
        "PyG LightGCN (edge_index)": functools.partial(light_gcn, form=edge_index),
    },
}
