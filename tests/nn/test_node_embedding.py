"""Trainable vectors of nodes: their first values, their gradients, and training on several layouts."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import fit, set_up
from fullgnn.engine.run import build_model
from fullgnn.engine.state import sharded_names, split_parameters
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Graph
from fullgnn.nn import NodeEmbedding
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, layout_overrides
from tests.oracle import normalize, philox_words
from tests.schemes.training import summed_gradients

LAYOUTS = [
    (1, 1, []),
    (3, 1, ["partition=random"]),
    (4, 2, ["partition=metis", "reorder=rcm"]),
    (4, 2, ["scheme.split_rows=false"]),
]
"""Processes, replication, and further overrides."""


def graph_of(features: bool) -> Graph:
    graph = dense_graph("directed").graph()
    return graph if features else dataclasses.replace(graph, features=None)


def case(replication: int, *overrides: str) -> Config:
    return config(
        *layout_overrides(replication), "model.embedding_channels=6", "runtime.dtype=float64", "seed=3",
        "train.epochs=15", "optimizer.lr=0.05", *overrides,
    )  # fmt: skip


def expected_rows(seed: int, channels: int) -> np.ndarray:
    """The first values of the vectors of 29 nodes: normal numbers from Philox, in the stream 2^31, at epoch 0."""
    words = philox_words(np.arange(29), channels, 1 << 31, 0, seed)
    return scipy.stats.norm.ppf((words + 0.5) / 2**32) * channels**-0.5


def test_first_values() -> None:
    embedding, ids = NodeEmbedding(6, seed=3), torch.tensor([28, 0, 7])
    embedding.place(ids)
    np.testing.assert_allclose(embedding.weight.detach(), expected_rows(3, 6)[ids], rtol=1e-6)
    others = [NodeEmbedding(6, 3, number=1), NodeEmbedding(6, 4)]
    for other in others:
        other.place(ids)
        assert not torch.isclose(other.weight, embedding.weight).any()
    large = NodeEmbedding(64, seed=0, std=0.1)
    large.place(torch.arange(20_000))
    assert large.weight.mean().abs() < 1e-3 and large.weight.std().item() == pytest.approx(0.1, rel=1e-2)


def one_step(world: World, cfg: Config, graph: Graph) -> dict[str, Any]:
    job = set_up(cfg, world, Meter(world.device), graph if world.rank == 0 else None)
    gradients = summed_gradients(job)
    (rows,) = gradients.grad_rows
    gathered = job.scheme.gather(rows)
    replicated, sharded = split_parameters(job.model)
    assert sharded_names(job.model) == ["embedding.weight"] and len(sharded) == 1
    return {
        "loss": gradients.results[0].item(),
        "rows": None if gathered is None else gathered.numpy(),
        "others": [parameter.grad.numpy().copy() for parameter in replicated],
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize(("world_size", "replication", "overrides"), LAYOUTS)
def test_gradients(ranks, world_size: int, replication: int, overrides: list[str], features: bool) -> None:
    cfg, graph = case(replication, "model.dropout=0", *overrides), graph_of(features)
    model = build_model(cfg, graph.num_features, 3, torch.device("cpu"))
    rows = torch.from_numpy(expected_rows(3, 6)).requires_grad_()
    adj = torch.from_numpy(normalize(dense_graph("directed").adj, "sym"))
    h = torch.cat([torch.from_numpy(graph.features.copy()), rows], dim=1)
    first, second = (layer.conv for layer in model.layers)
    h = (adj @ h @ first.linear.weight + first.bias).relu()
    h = adj @ h @ second.linear.weight + second.bias
    train = graph.train_mask.copy()
    loss = torch.nn.functional.cross_entropy(h[train], torch.from_numpy(graph.labels[train]))
    loss.backward()
    outcomes = ranks(world_size)(one_step, cfg, graph)
    assert rows.grad is not None
    np.testing.assert_allclose(outcomes[0]["rows"], rows.grad, rtol=0, atol=1e-12)
    for outcome in outcomes:
        assert outcome["loss"] == pytest.approx(loss.item(), abs=1e-12)
        expected = [parameter.grad for parameter in split_parameters(model)[0]]
        for gradient, other in zip(outcome["others"], expected, strict=True):
            np.testing.assert_allclose(gradient, other, rtol=0, atol=1e-12)


def trained(world: World, cfg: Config, graph: Graph) -> dict[str, Any]:
    meter = Meter(world.device)
    job = set_up(cfg, world, meter, graph if world.rank == 0 else None)
    result = fit(StepRunner(job))
    replicated, (rows,) = split_parameters(job.model)
    gathered = job.scheme.gather(rows)
    parts = {"losses": torch.tensor([record.loss for record in result.epochs])}
    parts |= {str(number): parameter.detach() for number, parameter in enumerate(replicated)}
    return {name: part.numpy() for name, part in parts.items()} | (
        {} if gathered is None else {"rows": gathered.numpy()}
    )


@pytest.mark.sample(12)
@pytest.mark.parametrize("model", [[], ["model=mlp"], ["model=gat", "model.heads=2"]])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_training_does_not_depend_on_the_layout(ranks, model: list[str], optimizer: str) -> None:
    """Dropout included, float64, 15 epochs."""
    choice = [*model, f"optimizer={optimizer}"]
    (expected,) = ranks(1)(trained, case(1, *choice), graph_of(False))
    assert expected["losses"][-1] < expected["losses"][0]
    for world_size, replication, overrides in LAYOUTS[1:]:
        if model and model[0] == "model=gat" and "scheme.split_rows=false" in overrides:
            continue  # attention needs rows that are split over the replicas
        for arrays in ranks(world_size)(trained, case(replication, *choice, *overrides), graph_of(False)):
            for name, array in arrays.items():
                np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-9, err_msg=name)


def test_a_graph_without_features_needs_an_embedding(ranks) -> None:
    (message,) = ranks(1)(refusal, config(), graph_of(False))
    assert message.startswith("the graph has no features: give model.embedding_channels=64")


def refusal(world: World, cfg: Config, graph: Graph) -> str:
    try:
        set_up(cfg, world, Meter(world.device), graph)
    except Exception as error:
        return str(error)
    return ""
