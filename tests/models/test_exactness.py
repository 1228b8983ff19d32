"""Every model of conf/model under every scheme of conf/scheme equals the same model on one dense block, in float64.

A new model or scheme inherits these tests: nothing here names one.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import fit
from fullgnn.engine.blocks import all_logits, loss_logits, needs_of
from fullgnn.engine.job import build_model
from fullgnn.engine.optimizations import applicable
from fullgnn.engine.train_step import FlatGradients, TrainStep, node_loss
from fullgnn.nn import set_epoch
from fullgnn.schemes import ShardedGraph
from fullgnn.telemetry.meter import Meter
from tests.cases import NUM_CLASSES, config, dense_graph
from tests.dense_block import block_of
from tests.schemes.training import STEP, prepare

CONF = Path(__file__).parents[2] / "conf"
MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
SCHEMES = sorted(path.stem for path in (CONF / "scheme").glob("*.yaml") if path.stem not in ("base", "auto"))
KINDS = ["symmetric", "directed", "weighted", "isolated", "tiny", "corner"]
LAYOUTS = [("1d", 1, 1), ("1d", 3, 1), ("1.5d", 4, 2), ("1.5d", 6, 3)]
CASE = [
    "runtime.dtype=float64",
    "model.num_layers=3",
    "seed=3",
    "train.epochs=20",
    "train.eval_every=0",
    "train.lr=0.02",
]


def test_every_scheme_is_tested() -> None:
    assert {scheme for scheme, _, _ in LAYOUTS} == set(SCHEMES)


def case(model: str, scheme: str, replication: int, *overrides: str) -> Config:
    replicas = [] if replication == 1 else [f"scheme.replication={replication}"]
    return config(f"model={model}", f"scheme={scheme}", *replicas, *CASE, *overrides)


class OneProcess:
    """A ``Scheme`` of one process."""

    def sum_over_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.detach()


def in_one_process(cfg: Config, kind: str) -> tuple[torch.nn.Module, ShardedGraph]:
    """The model of ``cfg`` and the graph as one dense block."""
    dense = dense_graph(kind)
    model = build_model(cfg, dense.features.shape[1], NUM_CLASSES, torch.device("cpu"))
    needs = needs_of(model, applicable(cfg.optimizations, model))
    train = torch.from_numpy(np.flatnonzero(dense.train_mask))
    masks = np.stack([dense.train_mask, dense.val_mask, ~(dense.train_mask | dense.val_mask)])
    num_split = tuple(int(mask.sum()) for mask in masks)
    graph = ShardedGraph(
        block_of(dense.adj, needs),
        block_of(dense.adj, needs, train) if needs.loss_rows else None,
        torch.from_numpy(dense.features),
        torch.from_numpy(dense.labels),
        torch.from_numpy(masks),
        dense.features.shape[1],
        NUM_CLASSES,
        num_split,
    )
    return model, graph


def step(model: torch.nn.Module, graph: ShardedGraph, scheme: Any) -> dict[str, np.ndarray]:
    """Loss, logits of all nodes with and without dropout (on rank 0), and the gradient of every parameter."""
    gradients = FlatGradients(model)
    model.train()
    set_epoch(model, STEP)
    loss = node_loss(loss_logits(model, graph), graph)
    loss.backward()
    scheme.sum_over_rows(gradients.flat)
    found = {"loss": scheme.sum_over_rows(loss.detach().clone()).numpy()}
    found |= {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        logits = {"logits": all_logits(model, graph), "evaluation": all_logits(model.eval(), graph)}
    gathered = {name: scheme.gather(rows) for name, rows in logits.items()}
    return found | {name: rows.numpy() for name, rows in gathered.items() if rows is not None}


def epochs(model: torch.nn.Module, graph: ShardedGraph, scheme: Any, cfg: Config) -> dict[str, np.ndarray]:
    """Losses and parameters after training."""
    trained = fit(TrainStep(model, graph, scheme, cfg.train, Meter(torch.device("cpu"))), cfg.train)
    found = {"losses": np.array([record.loss for record in trained.epochs])}
    return found | {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def distributed(world: World, cfg: Config, kind: str, trains: bool) -> dict[str, np.ndarray]:
    _, scheme, job = prepare(world, cfg, kind)
    return epochs(job.model, job.graph, scheme, cfg) if trains else step(job.model, job.graph, scheme)


def expected(cfg: Config, kind: str, trains: bool) -> dict[str, np.ndarray]:
    model, graph = in_one_process(cfg, kind)
    return epochs(model, graph, OneProcess(), cfg) if trains else step(model, graph, OneProcess())


def compare(found: list[dict[str, np.ndarray]], exact: dict[str, np.ndarray], tolerance: float, case: Any) -> None:
    assert found[0].keys() == exact.keys()
    for rank in found:
        for name, array in rank.items():
            np.testing.assert_allclose(array, exact[name], rtol=tolerance, atol=tolerance, err_msg=f"{case} {name}")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("scheme", "world_size", "replication"), LAYOUTS)
def test_a_step_equals_the_dense_block(
    ranks, model: str, scheme: str, world_size: int, replication: int, every_case: bool
) -> None:
    variants = [[], ["scheme.split_rows=false", "scheme.stage_order=broadcast"]]
    if every_case:
        variants += [["scheme.fetch=whole"], ["scheme.shared_memory=false"], ["optimizations.loss_rows_only=true"]]
    for overrides in variants:
        cfg = case(model, scheme, replication, *overrides)
        for kind in KINDS if every_case else KINDS[1:5]:
            found = ranks(world_size)(distributed, cfg, kind, False)
            compare(found, expected(cfg, kind, False), 1e-10, (kind, overrides))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("scheme", "world_size", "replication"), LAYOUTS)
@pytest.mark.sample(3)
def test_twenty_epochs_equal_the_dense_block(ranks, model: str, scheme: str, world_size: int, replication: int) -> None:
    for kind in ("symmetric", "directed"):
        cfg = case(model, scheme, replication)
        found = ranks(world_size)(distributed, cfg, kind, True)
        compare(found, expected(cfg, kind, True), 1e-8, kind)
