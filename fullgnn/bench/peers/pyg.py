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

from fullgnn.bench.models import DEPTH, HOPS, LIGHT_LAYERS, POWERS, WALK
from fullgnn.bench.peers.torch_sparse import Product, normalized
from fullgnn.bench.peers.torch_sparse import unweighted as torch_csr
from fullgnn.bench.peers.training import Models, Peer, attention, gcnii, mlp, of_linears, two_layers
from fullgnn.bench.problem import Problem
from fullgnn.errors import UnsupportedError
from fullgnn.telemetry.machine import available_memory

Form = Callable[[Problem], Any]
"""Makes A + I as one of the types that PyG takes."""


def sparse_tensor(problem: Problem) -> Any:
    """A + I as a ``torch_sparse.SparseTensor``."""
    from torch_sparse import SparseTensor

    shape = (problem.num_nodes, problem.num_nodes)
    return SparseTensor(rowptr=problem.indptr.long(), col=problem.indices.long(), sparse_sizes=shape, is_sorted=True)


def edge_index(problem: Problem, gathers_features: bool = False) -> Tensor:
    """(2, nnz) int64, sorted by target.

    Args:
        gathers_features: whether a message of the first layer has the columns of the features, before they are
            multiplied by weights.
    """
    columns = problem.widths if gathers_features else problem.widths[1:]
    messages = 4 * problem.nnz * max(columns)  # bytes, of one layer
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
    """PyG's ``spmm`` as the product (A + I) X."""
    from torch_geometric.utils import spmm

    adj = form(problem)
    return lambda x: spmm(adj, x, "sum")


def gcn_conv(problem: Problem, weights: list[Tensor], form: Form, dropout: float = 0.0) -> torch.nn.Module:
    """Two layers of ``GCNConv``."""
    from torch_geometric.nn import GCNConv

    adj = form(problem)
    convs = [GCNConv(*weight.shape, cached=True, add_self_loops=False) for weight in weights]  # the loops are in A + I
    matrices_of, call = lambda conv: [conv.lin.weight.T], lambda conv, h: conv(h, adj)
    return two_layers(problem, weights, convs, matrices_of, call, dropout)


def gat_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two layers of ``GATConv``."""
    from torch_geometric.nn import GATConv

    def matrices_of(conv: GATConv) -> list[Tensor]:
        return [conv.lin.weight.T, conv.att_src[0], conv.att_dst[0]]

    return _attention(problem, weights, GATConv, weights[1], matrices_of)


def gatv2_conv(problem: Problem, weights: list[Tensor]) -> torch.nn.Module:
    """Two layers of ``GATv2Conv``."""
    from torch_geometric.nn import GATv2Conv

    def matrices_of(conv: GATv2Conv) -> list[Tensor]:
        return [conv.att[0], conv.lin_l.weight.T, conv.lin_r.weight.T]

    return _attention(problem, weights, GATv2Conv, weights[0], matrices_of)


def _attention(
    problem: Problem, weights: list[Tensor], layer: Any, heads: Tensor, matrices_of: Callable[[Any], list[Tensor]]
) -> torch.nn.Module:
    """Two layers of attention over ``edge_index``; see ``training.attention``."""
    edges = edge_index(problem)
    make = functools.partial(layer, add_self_loops=False)  # the loops are in A + I
    return attention(problem, weights, make, heads, matrices_of, lambda conv, h: conv(h, edges))


def sage_conv(problem: Problem, weights: list[Tensor], form: Form, aggr: str = "mean") -> torch.nn.Module:
    """Two layers of ``SAGEConv``."""
    from torch_geometric.nn import SAGEConv

    adj = form(problem.without_loops)
    convs = [SAGEConv(*weight.shape, aggr=aggr) for weight in weights[::2]]
    return two_layers(
        problem,
        weights,
        convs,
        lambda conv: [conv.lin_l.weight.T, conv.lin_r.weight.T],
        lambda conv, h: conv(h, adj),
    )


def gin_conv(problem: Problem, weights: list[Tensor], form: Form) -> torch.nn.Module:
    """Two layers of ``GINConv`` with an MLP of two layers."""
    from torch_geometric.nn import GINConv

    adj = form(problem.without_loops)
    convs = [GINConv(mlp(*pair)) for pair in zip(weights[::2], weights[1::2])]
    return two_layers(problem, weights, convs, lambda conv: of_linears(conv.nn), lambda conv, h: conv(h, adj))


def sg_conv(problem: Problem, weights: list[Tensor], form: Form) -> torch.nn.Module:
    """``SGConv``, which keeps the propagated features."""
    from torch_geometric.nn import SGConv

    adj = form(problem)
    convs = [SGConv(*weights[0].shape, K=HOPS, cached=True, add_self_loops=False)]
    return Peer(problem, weights, convs, lambda convs: [convs[0].lin.weight.T], lambda convs, x: convs[0](x, adj))


def powers(problem: Problem, weights: list[Tensor], form: Form) -> torch.nn.Module:
    """N-GCN: ``SGConv`` with each power, which keeps the propagated features, then dense layers and ``APPNP`` without
    restart, which propagates only, then a dense layer."""
    from torch_geometric.nn import APPNP, SGConv

    adj, scaled = form(problem), normalized(problem)
    first, second, last = weights[:POWERS], weights[POWERS:-1], weights[-1]
    convs = [
        SGConv(*weight.shape, K=k, cached=True, add_self_loops=False, bias=False) for k, weight in enumerate(first)
    ]
    dense = [torch.nn.Linear(len(weight), weight.shape[1], bias=False) for weight in (*second, last)]
    walks = [APPNP(k, 0.0, normalize=False) for k in range(POWERS)]

    def call(modules: Any, x: Tensor) -> Tensor:
        outputs = []
        for conv, linear, walk in zip(modules, modules[POWERS:], walks):
            outputs.append(walk(linear(F.relu(conv(x, adj))), scaled))
        return modules[-1](torch.cat(outputs, dim=1))

    def matrices(modules: Any) -> list[Tensor]:
        return [*(conv.lin.weight.T for conv in modules[:POWERS]), *of_linears(modules)]

    return Peer(problem, weights, [*convs, *dense], matrices, call)


def appnp(problem: Problem, weights: list[Tensor], form: Form) -> torch.nn.Module:
    """Two dense layers and ``APPNP``."""
    from torch_geometric.nn import APPNP

    adj, walk = form(problem), APPNP(WALK, 0.1, cached=True, add_self_loops=False)
    return Peer(
        problem, weights, mlp(*weights), of_linears, lambda layers, x: walk(torch.nn.Sequential(*layers)(x), adj)
    )


def gcn2_conv(problem: Problem, weights: list[Tensor], form: Form) -> torch.nn.Module:
    """Layers of ``GCN2Conv`` between two dense layers."""
    from torch_geometric.nn import GCN2Conv

    adj, hidden = form(problem), weights[0].shape[1]
    options = dict(alpha=0.1, theta=0.5, cached=True, add_self_loops=False)
    convs = [GCN2Conv(hidden, layer=layer, **options) for layer in range(1, DEPTH + 1)]
    return gcnii(problem, weights, convs, lambda layer, h, initial: layer(h, initial, adj))


def light_gcn(problem: Problem, weights: list[Tensor], form: Form) -> torch.nn.Module:
    """``LightGCN`` with the normalised adjacency, which has no self-loops."""
    from torch_geometric.nn import LightGCN

    (table,), problem = weights, problem.without_loops
    scaled, model = normalized(problem), LightGCN(*table.shape, num_layers=LIGHT_LAYERS, normalize=False)
    adj = (scaled,) if form is torch_csr else (form(problem), scaled.values())
    with torch.no_grad():
        model.embedding.weight.copy_(table)
    model.forward = functools.partial(model.get_embedding, *adj)
    return model.to(table.device)


def forms(
    name: str, make: Callable[..., torch.nn.Module], gathers_features: bool = False
) -> dict[str, Callable[..., torch.nn.Module]]:
    """The methods of one layer, by the type of its adjacency."""
    pairs = functools.partial(edge_index, gathers_features=gathers_features)
    known = {"torch CSR": torch_csr, "SparseTensor": sparse_tensor, "edge_index": pairs}
    return {f"PyG {name} ({kind})": functools.partial(make, form=form) for kind, form in known.items()}


SPMM = {
    "PyG spmm (torch CSR)": functools.partial(spmm, form=torch_csr),
    "PyG spmm (SparseTensor)": functools.partial(spmm, form=sparse_tensor),
}
MODELS: Models = {
    "gcn": forms("GCNConv", gcn_conv),
    "sage": forms("SAGEConv", sage_conv, gathers_features=True),
    "sage-max": forms("SAGEConv max", functools.partial(sage_conv, aggr="max"), gathers_features=True),
    "gin": forms("GINConv", gin_conv, gathers_features=True),
    "gat": {"PyG GATConv (edge_index)": gat_conv},
    "gatv2": {"PyG GATv2Conv (edge_index)": gatv2_conv},
    "sgc": forms("SGConv", sg_conv, gathers_features=True),
    "ngcn": forms("SGConv and APPNP", powers, gathers_features=True),
    "appnp": forms("APPNP", appnp),
    "gcnii": forms("GCN2Conv", gcn2_conv),
    "lightgcn": {
        "PyG LightGCN (torch CSR)": functools.partial(light_gcn, form=torch_csr),
        "PyG LightGCN (edge_index)": functools.partial(light_gcn, form=edge_index),
    },
}
