"""Every layout is the same mathematics: compared with the dense float64 oracle and with one process."""

from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.config import Config, build
from fullgnn.dist import World
from fullgnn.engine import fit
from fullgnn.engine.fit import FlatGradients, node_loss
from fullgnn.meter import Meter
from fullgnn.nn import set_epoch
from fullgnn.train import build_model, load_shard
from tests.cases import LAYOUTS, config, dense_graph, layout_overrides
from tests.oracle import DenseGCN, normalize

KINDS = ["symmetric", "directed", "weighted", "isolated", "tiny", "corner"]
DROPOUT = 0.4
SEED = 3


def oracle(kind: str, model: torch.nn.Module, normalization: str = "sym") -> DenseGCN:
    """A dense copy of ``model`` on the same graph."""
    dense = dense_graph(kind)
    return DenseGCN(
        normalize(dense.adj, normalization),
        dense.features,
        dense.labels,
        dense.train_mask,
        [conv.linear.weight.detach().cpu().numpy().copy() for conv in model.convs],
        [conv.bias.detach().cpu().numpy().copy() for conv in model.convs],
        DROPOUT,
        SEED,
    )


def case(replication: int, *overrides: str) -> Config:
    return config(
        *layout_overrides(replication),
        f"model.dropout={DROPOUT}",
        "model.num_layers=3",
        "model.hidden_channels=7",
        f"seed={SEED}",
        "runtime.dtype=float64",
        *overrides,
    )


def set_up(world: World, cfg: Config, kind: str) -> Any:
    meter = Meter(world.device)
    scheme = build(cfg.scheme, world=world, kernel=build(cfg.kernel), meter=meter)
    graph = dense_graph(kind).graph() if world.rank == 0 else None
    sharded, preparation = load_shard(cfg, scheme, graph)
    return meter, scheme, sharded, build_model(cfg, sharded.num_features, sharded.num_classes, world)


def one_step(world: World, cfg: Config, kind: str) -> dict[str, float]:
    """Largest elementwise differences from the oracle: logits with dropout, loss, every gradient (unscaled)."""
    _, scheme, graph, model = set_up(world, cfg, kind)
    dense = oracle(kind, model, cfg.normalization)
    gradients = FlatGradients(model)
    set_epoch(model, 5)
    logits = model(graph.features, graph.adj)
    loss = node_loss(logits, graph)
    loss.backward()
    scheme.sum_over_rows(gradients.flat)
    total = scheme.sum_over_rows(loss.detach().clone()).item()
    gathered = scheme.gather(logits)

    expected_loss, grad_w, grad_b = dense.loss_and_gradients(5)
    difference = {"loss": abs(total - expected_loss)}
    if gathered is not None:
        difference["logits"] = np.abs(gathered.numpy() - dense.forward(5)[0]).max()
    for layer, conv in enumerate(model.convs):
        difference[f"W{layer}"] = np.abs(conv.linear.weight.grad.cpu().numpy() - grad_w[layer]).max()
        difference[f"b{layer}"] = np.abs(conv.bias.grad.cpu().numpy() - grad_b[layer]).max()
    return difference


def trained(world: World, cfg: Config, kind: str) -> tuple[list[float], list[np.ndarray], float]:
    """Losses and parameters after 20 epochs, and their largest difference from the oracle's."""
    meter, scheme, graph, model = set_up(world, cfg, kind)
    dense = oracle(kind, model)
    result = fit(model, graph, scheme, cfg.train, meter)
    expected = dense.train(20, cfg.train.optimizer, cfg.train.lr, cfg.train.weight_decay)
    losses = [record.loss for record in result.epochs]
    parameters = [
        parameter.detach().cpu().numpy() for conv in model.convs for parameter in (conv.linear.weight, conv.bias)
    ]
    dense_parameters = [array for pair in zip(dense.weights, dense.biases) for array in pair]
    difference = max(
        np.abs(a - b).max() for a, b in zip([np.array(losses), *parameters], [np.array(expected), *dense_parameters])
    )
    return losses, parameters, difference


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
def test_logits_loss_and_gradients_equal_the_oracle(ranks, world_size: int, replication: int) -> None:
    for normalization, order in (("sym", "none"), ("row", "shuffle"), ("none", "rcm"), ("sym", "metis")):
        cfg = case(replication, f"normalization={normalization}", f"reorder={order}", "reorder.cluster_size=3")
        for kind in KINDS:
            for difference in ranks(world_size)(one_step, cfg, kind):
                assert max(difference.values()) < 1e-11, (kind, normalization, order, difference)


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_twenty_epochs_equal_the_oracle(ranks, world_size: int, replication: int, optimizer: str) -> None:
    cfg = case(replication, f"train.optimizer={optimizer}", "train.lr=0.05", "train.epochs=20", "train.eval_every=7")
    for kind in KINDS:
        outcomes = ranks(world_size)(trained, cfg, kind)
        assert max(difference for _, _, difference in outcomes) < 1e-9, kind
        _, reference, _ = outcomes[0]
        for _, parameters, _ in outcomes:  # bitwise the same on every rank
            assert all(np.array_equal(a, b) for a, b in zip(parameters, reference))
