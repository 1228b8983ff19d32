"""Helpers that test_exactness.py shares with other test modules."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import Run, fit
from fullgnn.engine.checks import applicable
from fullgnn.engine.passes import all_logits, loss_logits
from fullgnn.engine.run import build_model
from fullgnn.engine.state import FlatGradients, place_rows
from fullgnn.engine.step_runner import StepRunner
from fullgnn.nn import set_epoch
from fullgnn.nn.contract import block_request
from fullgnn.schemes import ShardedGraph
from fullgnn.telemetry.meter import Meter
from tests.cases import NUM_CLASSES, config, dense_graph, multi_class
from tests.dense_block import block_of
from tests.schemes.training import STEP, prepare

CONF = Path(__file__).parents[2] / "conf"
OF_LINKS = {"lightgcn"}
"""Models that are trained with a task that finds links: ``tests/tasks/test_links.py`` tests them."""


MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml") if path.stem not in ("base", *OF_LINKS))
CASE = [
    "runtime.dtype=float64",
    "seed=3",
    "train.epochs=20",
    "train.eval_every=0",
    "optimizer.lr=0.02",
]


def case(model: str, scheme: str, replication: int, *overrides: str) -> Config:
    replicas = [] if replication == 1 else [f"scheme.replication={replication}"]
    chosen = config(f"model={model}").model
    depth = [f"model.{key}=3" for key in ("num_layers", "num_hops") if key in chosen]
    return config(f"model={model}", f"scheme={scheme}", *replicas, *CASE, *depth, *overrides)


class OneProcess:
    """A ``Scheme`` of one process."""

    def sum_over_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.detach()


def in_one_process(cfg: Config, kind: str, make: Callable[[], torch.nn.Module] | None = None) -> Any:
    """The model, of ``cfg`` or made by ``make``, and the graph as one dense block."""
    dense = dense_graph(kind)
    model = make() if make else build_model(cfg, dense.features.shape[1], NUM_CLASSES, torch.device("cpu"))
    place_rows(model, torch.arange(len(dense.adj)))
    request = block_request(model, applicable(cfg.optimizations, model))
    train = torch.from_numpy(np.flatnonzero(dense.train_mask))
    masks = np.stack([dense.train_mask, dense.val_mask, ~(dense.train_mask | dense.val_mask)])
    num_split = tuple(int(mask.sum()) for mask in masks)
    graph = ShardedGraph(
        block_of(dense.adj, request),
        block_of(dense.adj, request, train) if request.loss_rows else None,
        torch.from_numpy(dense.features),
        torch.from_numpy(dense.labels),
        torch.from_numpy(masks),
        dense.features.shape[1],
        NUM_CLASSES,
        num_split,
        request.num_blocks,
    )
    return model, graph


def step(model: torch.nn.Module, graph: ShardedGraph, scheme: Any) -> dict[str, np.ndarray]:
    """Loss, logits of all nodes with and without dropout (on rank 0), and the gradient of every parameter."""
    gradients = FlatGradients(model)
    model.train()
    set_epoch(model, STEP)
    loss = multi_class(graph).loss(loss_logits(model, graph), graph.train_labels)
    loss.backward()
    scheme.sum_over_rows(gradients.flat)
    arrays = {"loss": scheme.sum_over_rows(loss.detach().clone()).cpu().numpy()}
    arrays |= {name: parameter.grad.cpu().numpy() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        logits = {"logits": all_logits(model, graph), "evaluation": all_logits(model.eval(), graph)}
    gathered = {name: scheme.gather(rows) for name, rows in logits.items()}
    return arrays | {name: rows.numpy() for name, rows in gathered.items() if rows is not None}


def epochs(model: torch.nn.Module, graph: ShardedGraph, scheme: Any, cfg: Config) -> dict[str, np.ndarray]:
    """Losses and parameters after training."""
    alone: Any = None
    run = Run(cfg, alone, Meter(torch.device("cpu")), alone, model, multi_class(graph), cfg.optimizations, alone)
    run.scheme, run.graph = scheme, graph
    trained = fit(StepRunner(run))
    arrays = {"losses": np.array([record.loss for record in trained.epochs])}
    return arrays | {name: parameter.detach().cpu().numpy() for name, parameter in model.named_parameters()}


def distributed(world: World, cfg: Config, kind: str, trains: bool) -> dict[str, np.ndarray]:
    _, scheme, job = prepare(world, cfg, kind)
    return epochs(job.model, job.graph, scheme, cfg) if trains else step(job.model, job.graph, scheme)


def expected(cfg: Config, kind: str, trains: bool) -> dict[str, np.ndarray]:
    model, graph = in_one_process(cfg, kind)
    return epochs(model, graph, OneProcess(), cfg) if trains else step(model, graph, OneProcess())


def compare(of_ranks: list[dict[str, np.ndarray]], exact: dict[str, np.ndarray], tolerance: float, case: Any) -> None:
    assert of_ranks[0].keys() == exact.keys()
    for rank in of_ranks:
        for name, array in rank.items():
            np.testing.assert_allclose(array, exact[name], rtol=tolerance, atol=tolerance, err_msg=f"{case} {name}")
