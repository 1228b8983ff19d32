"""Weights move between PyG's layers and models and ours, and both then compute the same outputs and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from fullgnn.errors import DataError, UnsupportedError
from fullgnn.models import GAT, GCN, GIN, SAGE, SGC, LightGCN
from fullgnn.models.pyg_weights import from_pyg, to_pyg
from fullgnn.nn import GATConv, GATv2Conv, GCN2Conv, GCNConv, GINConv, SAGEConv, contract_of
from fullgnn.nn.contract import block_request
from tests.cases import config, dense_graph
from tests.dense_block import block_of

IN, OUT, HEADS = 5, 6, 2


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def mlp(norm: bool) -> torch.nn.Module:
    norms = [torch.nn.BatchNorm1d(OUT)] if norm else []
    return torch.nn.Sequential(torch.nn.Linear(IN, OUT), *norms, torch.nn.ReLU(), torch.nn.Linear(OUT, OUT))


def gcn2(shared: bool) -> tuple[Any, Any]:
    keys = dict(alpha=0.2, theta=0.5, layer=2, shared_weights=shared)
    return GCN2Conv(IN, generator(), **keys), pyg.GCN2Conv(IN, **keys)


Pair = tuple[torch.nn.Module, torch.nn.Module]
LAYERS: dict[str, Callable[[], Pair]] = {
    "GCNConv": lambda: (GCNConv(IN, OUT, generator()), pyg.GCNConv(IN, OUT)),
    "GCNConv without bias": lambda: (GCNConv(IN, OUT, generator(), bias=False), pyg.GCNConv(IN, OUT, bias=False)),
    "SAGEConv": lambda: (SAGEConv(IN, OUT, generator()), pyg.SAGEConv(IN, OUT)),
    "GATConv": lambda: (GATConv(IN, OUT, generator(), HEADS), pyg.GATConv(IN, OUT // HEADS, HEADS)),
    "GATConv, mean": lambda: (GATConv(IN, OUT, generator(), HEADS, False), pyg.GATConv(IN, OUT, HEADS, False)),
    "GATv2Conv": lambda: (GATv2Conv(IN, OUT, generator(), HEADS), pyg.GATv2Conv(IN, OUT // HEADS, HEADS)),
    "GATv2Conv, mean": lambda: (
        GATv2Conv(IN, OUT, generator(), HEADS, False, bias=False),
        pyg.GATv2Conv(IN, OUT, HEADS, False, bias=False),
    ),
    "SAGEConv, maximum": lambda: (SAGEConv(IN, OUT, generator(), "max"), pyg.SAGEConv(IN, OUT, "max")),
    "GINConv": lambda: (GINConv(IN, OUT, generator(), 0.3, True), pyg.GINConv(mlp(False), 0.3, True)),
    "GINConv with norm": lambda: (GINConv(IN, OUT, generator(), norm="batch"), pyg.GINConv(mlp(True))),
    "GCN2Conv": lambda: gcn2(True),
    "GCN2Conv, two weights": lambda: gcn2(False),
}
SIZES = dict(hidden_channels=8, num_layers=3, dropout=0.0)
MODELS: dict[str, Callable[[], Pair]] = {
    "SGConv": lambda: (SGC(IN, OUT, num_hops=3), pyg.SGConv(IN, OUT, K=3)),
    "GCN": lambda: (GCN(IN, OUT, **SIZES), pyg.GCN(IN, out_channels=OUT, **SIZES)),
    "GraphSAGE": lambda: (SAGE(IN, OUT, **SIZES), pyg.GraphSAGE(IN, out_channels=OUT, **SIZES)),
    "GAT": lambda: (
        GAT(IN, OUT, **SIZES | dict(hidden_channels=3), heads=2, out_heads=2, attention_dropout=0.0),
        pyg.GAT(IN, out_channels=OUT, act="elu", heads=2, v2=False, **SIZES | dict(hidden_channels=6)),
    ),
    "GIN with norm": lambda: (
        GIN(IN, OUT, norm="batch", **SIZES),
        pyg.GIN(IN, out_channels=OUT, norm="batch_norm", **SIZES),
    ),
    "GCN with norm and jumping knowledge": lambda: (
        GCN(IN, OUT, norm="batch", jumping_knowledge="cat", **SIZES),
        pyg.GCN(IN, out_channels=OUT, norm="batch_norm", jk="cat", **SIZES),
    ),
}


def outcomes(ours: Any, theirs: Any, kind: str = "symmetric") -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The outputs, and the gradients by the names of PyG."""
    graph = dense_graph(kind)
    x, adj = torch.from_numpy(graph.features), torch.from_numpy(graph.adj)
    adj = adj * (1 - torch.eye(len(x)))  # ours replaces stored self-loops, PyG keeps their weights
    target, source = adj.nonzero().T
    edges = torch.stack([source, target])
    block = block_of(adj.numpy(), block_request(ours, config().optimizations))
    first = (x, torch.ones_like(x)) if isinstance(ours, GCN2Conv) else (x,)
    num_blocks = contract_of(ours).num_blocks
    blocks = block if num_blocks is None else [block] * num_blocks
    of_ours, of_theirs = ours(*first, blocks), theirs(*first, edges)
    factor = torch.randn(of_ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (of_ours * factor).sum().backward()
    (of_theirs * factor).sum().backward()
    for parameter in ours.parameters():
        parameter.data = parameter.grad  # so that ``to_pyg`` names the gradients
    gradients = to_pyg(ours)
    of_parameters = {name: gradients[name] for name, _ in theirs.named_parameters()}
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    return of_parameters | {"output": of_ours}, expected | {"output": of_theirs}


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", [*LAYERS, *MODELS])
def test_both_compute_the_same_with_weights_of_pyg(name: str) -> None:
    ours, theirs = (LAYERS | MODELS)[name]()
    ours, theirs = ours.double(), theirs.double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator()) / 3)
    from_pyg(ours, theirs.state_dict())
    computed, expected = outcomes(ours, theirs)
    for key, value in expected.items():
        torch.testing.assert_close(computed[key], value, rtol=1e-9, atol=1e-9, msg=key)


@pytest.mark.parametrize("name", [*LAYERS, *MODELS])
def test_weights_go_there_and_back(name: str) -> None:
    ours, theirs = (LAYERS | MODELS)[name]()
    before = {key: value.clone() for key, value in ours.state_dict().items()}
    missing, unknown = theirs.load_state_dict(to_pyg(ours), strict=False)
    assert not unknown and not missing
    for value in ours.state_dict().values():
        value.zero_()
    from_pyg(ours, theirs.state_dict())
    for key, value in ours.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_lightgcn_is_pygs_on_rows_in_another_order() -> None:
    """PyG numbers users and items from 0, as the original ids do; the rows of ours are in another order."""
    graph, order = dense_graph("symmetric"), torch.randperm(29, generator=generator())
    ours, theirs = LightGCN(IN, OUT, num_layers=2).double(), pyg.LightGCN(29, OUT, 2).double()
    ours.embedding.place(order)
    from_pyg(ours, theirs.state_dict())
    adj = torch.from_numpy(graph.adj) * (1 - torch.eye(29))
    block = block_of(adj[order][:, order].numpy(), block_request(ours, config().optimizations))
    target, source = adj.nonzero().T
    out = ours(torch.zeros(29, 0), [block] * 2)
    torch.testing.assert_close(out, theirs.get_embedding(torch.stack([source, target]))[order], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(to_pyg(ours)["embedding.weight"], theirs.embedding.weight.detach())
    theirs.load_state_dict(to_pyg(ours))
    with pytest.raises(DataError, match="^alpha of PyG is .* a mean of layers"):
        from_pyg(ours, theirs.state_dict() | {"alpha": torch.ones(3)})
    some = LightGCN(IN, OUT)
    some.embedding.place(torch.tensor([3, 5]))
    with pytest.raises(UnsupportedError, match="^this rank has the vectors of some nodes alone: gather them"):
        to_pyg(some)


def test_weights_that_do_not_fit_are_named() -> None:
    conv = GCNConv(IN, OUT, generator())
    with pytest.raises(DataError, match="^lin.weight is .6, 4. in PyG and would be .6, 5. here: build both GCNConv"):
        from_pyg(conv, pyg.GCNConv(4, OUT).state_dict())
    with pytest.raises(DataError, match="^the weights of PyG lack bias: build both GCNConv with the same options"):
        from_pyg(conv, pyg.GCNConv(IN, OUT, bias=False).state_dict())
    with pytest.raises(DataError, match="^the weights of PyG have bias too: build both"):
        from_pyg(GCNConv(IN, OUT, generator(), bias=False), pyg.GCNConv(IN, OUT).state_dict())
    with pytest.raises(UnsupportedError, match="ReLU has no counterpart in PyG"):
        to_pyg(torch.nn.ReLU())
    with pytest.raises(UnsupportedError, match="leave out model.residual"):
        to_pyg(GCN(IN, OUT, residual=True))
