"""Every model equals its formula, written out with dense float64 matrices: outputs and all gradients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fullgnn.config import OptimizationConfig
from fullgnn.models import APPNP, GAT, GCN, GCNII, GIN, MLP, NGCN, SAGE, SGC, GATv2
from fullgnn.nn import contract_of, set_epoch
from fullgnn.nn.contract import block_request
from tests.cases import NUM_CLASSES, config, dense_graph
from tests.dense_block import block_of
from tests.kernels.edges.blocks import dropout_factors
from tests.oracle import dropout_scale, normalize

SEED, EPOCH = 4, 3


@dataclass
class Formula:
    """What the formulas read: the graph, the model's parameters, and its dropouts."""

    adj: np.ndarray
    x: Tensor
    model: Any
    rate: float  # of every dropout; 0: evaluation

    def matrix(self, normalization: str = "sym", self_loops: bool = True) -> Tensor:
        return torch.from_numpy(normalize(self.adj, normalization, self_loops))

    def drop(self, h: Tensor, layer: int) -> Tensor:
        return h * torch.from_numpy(dropout_scale(*h.shape, self.rate, layer, EPOCH, SEED)) if self.rate else h


def dense(linear: Any, h: Tensor) -> Tensor:
    return h @ linear.weight + (0 if linear.bias is None else linear.bias)


def gcn(f: Formula) -> Tensor:
    h = f.x
    for number, layer in enumerate(f.model.layers):
        h = f.matrix() @ f.drop(torch.relu(h) if number else h, number) @ layer.conv.linear.weight
        h = h if layer.conv.bias is None else h + layer.conv.bias
    return h


def sage(f: Formula) -> Tensor:
    h, mean = f.x, f.matrix("row", self_loops=False)
    for number, layer in enumerate(f.model.layers):
        h = f.drop(torch.relu(h) if number else h, number)
        h = mean @ h @ layer.conv.neighbors.linear.weight + layer.conv.neighbors.bias + h @ layer.conv.root.weight
    return h


def sage_max(f: Formula) -> Tensor:
    h, adj = f.x, torch.from_numpy(f.adj)[:, :, None]
    for number, layer in enumerate(f.model.layers):
        h = f.drop(torch.relu(h) if number else h, number)
        largest = torch.where(adj != 0, adj * h, -torch.inf).amax(1)
        h = dense(layer.conv.neighbors, torch.where((adj != 0).any(1), largest, 0)) + h @ layer.conv.root.weight
    return h


def gat(f: Formula) -> Tensor:
    h = f.x
    for number, layer in enumerate(f.model.layers):
        conv, h = layer.conv, f.drop(functional.elu(h) if number else h, number)
        rows = (h @ conv.weight).unflatten(1, (conv.heads, -1))
        of_source, of_target = ((rows * vector).sum(2) for vector in (conv.att_source, conv.att_target))
        h = attention(f, number, functional.leaky_relu(of_source + of_target[:, None], 0.2), rows)
    return h


def gatv2(f: Formula) -> Tensor:
    h = f.x
    for number, layer in enumerate(f.model.layers):
        conv, h = layer.conv, f.drop(functional.elu(h) if number else h, number)
        rows, targets = (dense(linear, h).unflatten(1, (conv.heads, -1)) for linear in (conv.source, conv.target))
        logits = (functional.leaky_relu(rows + targets[:, None], 0.2) * conv.att_vector).sum(3)
        h = attention(f, number, logits, rows)
    return h


def attention(f: Formula, number: int, logits: Tensor, rows: Tensor) -> Tensor:
    """The result of a layer, from its (n, n, K) logits and (n, K, D) rows."""
    conv, weights = f.model.layers[number].conv, f.matrix("none")[:, :, None]
    softmax = torch.where(weights != 0, logits, -torch.inf).softmax(1) * weights
    if f.rate:
        ids = torch.arange(len(rows))
        softmax = softmax * dropout_factors(ids, ids, conv.heads, f.rate, SEED, EPOCH, number)
    by_head = torch.einsum("ijk,jkd->ikd", softmax, rows)
    return (by_head.flatten(1) if conv.concat else by_head.mean(1)) + conv.bias


def gin(f: Formula) -> Tensor:
    h, adj = f.x, torch.from_numpy(f.adj)
    for number, layer in enumerate(f.model.layers):
        h = f.drop(torch.relu(h) if number else h, number)
        h = dense(layer.conv.second, torch.relu(dense(layer.conv.first, (1 + layer.conv.eps) * h + adj @ h)))
    return h


def sgc(f: Formula) -> Tensor:
    return dense(f.model.linear, torch.linalg.matrix_power(f.matrix(), 3) @ f.x)


def mlp(f: Formula) -> Tensor:
    h = f.x
    for number, layer in enumerate(f.model.layers):
        h = dense(layer.conv, f.drop(torch.relu(h) if number else h, number))
    return h


def appnp(f: Formula) -> Tensor:
    h = z = mlp(f)
    for _ in range(3):
        z = 0.8 * f.matrix() @ z + 0.2 * h
    return z


def gcnii(f: Formula) -> Tensor:
    model, identity = f.model, torch.eye(6, dtype=torch.float64)
    first = h = torch.relu(dense(model.first, f.drop(f.x, 0)))
    for number, layer in enumerate(model.layers, 1):
        beta = np.log(0.7 / number + 1)
        propagated, of_first = 0.7 * f.matrix() @ f.drop(h, number), 0.3 * first
        mapping = (1 - beta) * identity + beta * layer.weight
        if layer.initial_weight is None:
            h = torch.relu((propagated + of_first) @ mapping)
        else:
            h = torch.relu(propagated @ mapping + of_first @ ((1 - beta) * identity + beta * layer.initial_weight))
    return dense(model.last, f.drop(h, len(model.layers) + 1))


def ngcn(f: Formula) -> Tensor:
    model, copies, width = f.model, 2, 4
    outputs, hidden = [], []
    x = f.drop(f.x, 0)
    for branch in range(3 * copies):
        power, bias = torch.linalg.matrix_power(f.matrix(), branch // copies), model.first.bias.view(6, width)[branch]
        hidden.append(torch.relu(power @ x @ model.first.weight[branch] + bias))
    masked = f.drop(torch.cat(hidden, dim=1), 1).split(width, dim=1)
    for branch, h in enumerate(masked):
        power = torch.linalg.matrix_power(f.matrix(), branch // copies)
        bias = model.second.bias.view(6, NUM_CLASSES)[branch]
        outputs.append(power @ h @ model.second.weight[branch] + bias)
    if model.classifier is not None:
        return dense(model.classifier, torch.cat(outputs, dim=1))
    weights = model.attention.softmax(0)
    return sum(weight * output.softmax(1) for weight, output in zip(weights, outputs)).log()


NGCN_KEYS = dict(hidden_channels=4, num_powers=3, num_copies=2)
GCNII_KEYS = dict(hidden_channels=6, num_layers=3, alpha=0.3, theta=0.7)
CASES: dict[str, tuple[type, dict[str, Any], Callable[[Formula], Tensor]]] = {
    "gcn": (GCN, dict(hidden_channels=6, num_layers=3), gcn),
    "gcn without bias": (GCN, dict(hidden_channels=6, bias=False), gcn),
    "sage": (SAGE, dict(hidden_channels=6), sage),
    "sage, maximum": (SAGE, dict(hidden_channels=6, aggregation="max"), sage_max),
    "gat": (GAT, dict(hidden_channels=2, heads=3, out_heads=2), gat),
    "gatv2": (GATv2, dict(hidden_channels=2, heads=3, out_heads=2), gatv2),
    "gin": (GIN, dict(hidden_channels=6, eps=0.3), gin),
    "gin, narrow input": (GIN, dict(hidden_channels=4, train_eps=True), gin),
    "sgc": (SGC, dict(num_hops=3), sgc),
    "mlp": (MLP, dict(hidden_channels=6), mlp),
    "appnp": (APPNP, dict(hidden_channels=6, num_hops=3, alpha=0.2), appnp),
    "gcnii": (GCNII, GCNII_KEYS, gcnii),
    "gcnii*": (GCNII, GCNII_KEYS | dict(shared_weights=False), gcnii),
    "ngcn": (NGCN, NGCN_KEYS, ngcn),
    "ngcn, attention": (NGCN, NGCN_KEYS | dict(classifier="attention"), ngcn),
}


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def optimizations() -> OptimizationConfig:
    return config().optimizations


@pytest.mark.sample(14)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["directed", "weighted"])
def test_a_model_is_its_formula(name: str, rate: float, kind: str) -> None:
    make, keys, formula = CASES[name]
    if make is not SGC:
        keys = keys | {"dropout": rate}
        keys |= {"attention_dropout": rate} if issubclass(make, GAT) else {}
    elif rate:
        pytest.skip("SGC has no dropout")
    graph = dense_graph(kind)
    model = make(5, NUM_CLASSES, seed=SEED, **keys)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) / 4)
    set_epoch(model, EPOCH)
    x, block = torch.from_numpy(graph.features), block_of(graph.adj, block_request(model, optimizations()))
    factor = torch.randn(len(x), NUM_CLASSES, generator=torch.Generator().manual_seed(2))

    def outcome(output: Tensor) -> list[Tensor]:
        return [output.detach(), *torch.autograd.grad((output * factor).sum(), list(model.parameters()))]

    tensors = outcome(model(x, [block] * contract_of(model).num_blocks))
    expected = outcome(formula(Formula(graph.adj, x, model, rate)))
    for tensor, other in zip(tensors, expected, strict=True):
        torch.testing.assert_close(tensor, other, rtol=1e-10, atol=1e-10)


OPTIONS: list[dict[str, Any]] = [
    dict(norm="batch"),
    dict(norm="layer", residual=True),
    dict(residual=True, hidden_channels=5),
    dict(jumping_knowledge="cat", norm="batch", residual=True),
    dict(jumping_knowledge="max", bias=False),
    dict(jumping_knowledge="sum"),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_options_of_a_layered_model_are_their_formulas(options: dict[str, Any]) -> None:
    graph, keys = dense_graph("weighted"), dict(hidden_channels=6, num_layers=3, dropout=0.0, seed=SEED)
    model = GCN(5, NUM_CLASSES, **keys | options)
    x, block = torch.from_numpy(graph.features), block_of(graph.adj, block_request(model, optimizations()))
    matrix, results, h = torch.from_numpy(normalize(graph.adj, "sym")), [], x
    for number, layer in enumerate(model.layers, 1):
        z = matrix @ h @ layer.conv.linear.weight + (0 if layer.conv.bias is None else layer.conv.bias)
        if options.get("residual"):
            z = z + (h if z.shape == h.shape else h @ layer.skip.weight)
        if number < 3 or "jumping_knowledge" in options:
            if options.get("norm") == "batch":
                z = functional.batch_norm(z, None, None, layer.norm.weight, layer.norm.bias, training=True)
            elif options.get("norm") == "layer":
                z = functional.layer_norm(z, z.shape[1:], layer.norm.weight, layer.norm.bias)
            z = torch.relu(z)
        results.append(z)
        h = z
    if join := options.get("jumping_knowledge"):
        joins = {"cat": lambda: torch.cat(results, 1), "sum": lambda: sum(results)}
        joins["max"] = lambda: torch.maximum(torch.maximum(*results[:2]), results[2])
        h = dense(model.joined, joins[join]())
    factor = torch.randn(len(x), NUM_CLASSES, generator=torch.Generator().manual_seed(2))
    out = model(x, [block] * 3)
    torch.testing.assert_close(out, h)
    parameters = list(model.parameters())
    gradients = zip(*(torch.autograd.grad((output * factor).sum(), parameters) for output in (out, h)))
    for gradient, other in gradients:
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-9)


def test_a_batch_norm_is_torchs_in_training_and_in_evaluation() -> None:
    """Also far from zero, where the variance loses digits, the running statistics are torch's."""
    graph = dense_graph("symmetric")
    model = GCN(5, NUM_CLASSES, norm="batch", dropout=0.0)
    block = block_of(graph.adj, block_request(model, optimizations()))
    ours, theirs = model.layers[0].norm, torch.nn.BatchNorm1d(16)
    for _ in range(3):
        x = 1e3 + torch.randn(29, 16, generator=torch.Generator().manual_seed(3))
        torch.testing.assert_close(ours(x, block), theirs(x), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var, rtol=1e-7, atol=1e-7)
    x = torch.randn(29, 16)
    torch.testing.assert_close(ours.eval()(x, block), theirs.eval()(x), rtol=1e-7, atol=1e-7)
