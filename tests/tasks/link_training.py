"""Helpers that test_links.py shares with other test modules."""

import functools
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import check_preparation, fit, set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import FullGNNError
from fullgnn.graph import Graph
from fullgnn.telemetry.meter import Meter
from tests.cases import config, layout_overrides
from tests.tasks.links import Links

SEED, LAYERS, WIDTH, EPOCHS = 5, 3, 4, 2
RANKING = ["task=link_ranking", "task.metrics=[recall@3,ndcg@3,ndcg@6]"]
PREDICTION = ["task=link_prediction", "task.num_candidates=7", "task.metrics=[mrr,hits@2]", "task.val_fraction=0"]
PREDICTION += ["task.test_fraction=0", "task.num_negatives=3"]  # the graphs of the tests have held-out links already
CASES = {
    "ranking": ("bipartite", [*RANKING]),
    "ranking, batches": ("bipartite", [*RANKING, "task.batch_size=11"]),
    "prediction": ("symmetric", [*PREDICTION, "task.batch_size=20"]),
    "prediction, directed": ("directed", [*PREDICTION]),
    "prediction of items": ("bipartite", [*PREDICTION, "task.batch_size=9"]),
    "prediction, few negatives": ("almost complete", [*PREDICTION, "task.batch_size=40"]),
    "ranking, few negatives": ("three pairs", [*RANKING]),
    "ranking, few negatives, batches": ("three pairs", [*RANKING, "task.batch_size=2"]),
}
"""Graph and overrides."""


@functools.cache
def links_of(kind: str) -> Links:
    """29 nodes, of which one is joined with every candidate and one with none; or a graph with few negatives."""
    if kind == "three pairs":
        adj = np.zeros((4, 4))
        adj[[0, 0, 1, 2, 3, 2], [2, 3, 2, 0, 0, 1]] = 1
        return Links(adj, 2, [(0, 2), (0, 3), (1, 2)], [], [])
    if kind == "almost complete":
        adj = 1 - np.eye(20)
        adj[[3, 7, 5, 11], [7, 3, 11, 5]] = 0
        return Links(adj, None, [(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(adj)))], [], [])
    rng = np.random.default_rng(11)
    if kind == "bipartite":
        num_users, held = 12, rng.random((12, 17)) < 0.15
        known = rng.random((12, 17)) < 0.25
        known[3], known[7], known[:, 5] = True, False, False
        known[3, 5], held[3], held[7, 2] = True, False, True
        adj = np.zeros((29, 29))
        adj[:12, 12:], adj[12:, :12] = known, known.T
        train = [(int(u), int(i) + 12) for u, i in zip(*np.nonzero(known))]
        others = [(int(u), int(i) + 12) for u, i in zip(*np.nonzero(held & ~known))]
        return Links(adj, num_users, train, others[::3], [pair for pair in others if pair not in others[::3]])
    adj = (rng.random((29, 29)) < 0.2).astype(float)
    adj[4], adj[6, 6] = 1, 1
    if kind == "symmetric":
        adj = np.maximum(adj, adj.T)
        adj[9] = adj[:, 9] = 0
        adj[4, 9] = adj[9, 4] = 1
    pairs = [(i, j) for i in range(29) for j in range(i + 1, 29) if adj[i, j] or adj[j, i]]
    away = [pair for pair in pairs[3::7] if 4 not in pair]
    for i, j in away:
        adj[i, j] = adj[j, i] = 0
    train = [pair for pair in pairs if pair not in away]
    return Links(adj, None, train, away[::2], away[1::2])


def graph_of(kind: str) -> Graph:
    links = links_of(kind)
    held = {name: np.array(pairs).T for name, pairs in (("val_links", links.val), ("test_links", links.test)) if pairs}
    if kind == "directed":
        held["test_links"] = held["test_links"][::-1]  # a pair has no direction
    return Graph.from_scipy(csr_array(links.adj), num_users=links.num_users, name=kind, **held)


def case(name: str, replication: int, *overrides: str) -> Config:
    return config(
        *layout_overrides(replication), *CASES[name][1], "model=lightgcn", f"model.num_layers={LAYERS}",
        f"task.channels={WIDTH}", "runtime.dtype=float64", f"seed={SEED}", f"task.seed={SEED}",
        f"train.epochs={EPOCHS}", "optimizer.lr=0.03", "optimizer.weight_decay=0.001", *overrides,
    )  # fmt: skip


def gathered(job: Any, rows: torch.Tensor) -> np.ndarray | None:
    whole = job.scheme.gather(rows.detach().contiguous())
    return None if whole is None else whole.numpy()


def gcn_losses(world: World, cfg: Config, graph: Graph) -> tuple[list[float], Any]:
    meter = Meter(world.device)
    job = set_up(cfg, world, meter, graph if world.rank == 0 else None)
    trained = fit(StepRunner(job))
    return [record.loss for record in trained.epochs], trained.last


def error_of(world: World, cfg: Config, graph: Graph) -> str:
    try:
        check_preparation(cfg)
        set_up(cfg, world, Meter(world.device), graph if world.rank == 0 else None)
    except FullGNNError as error:
        return str(error)
    return ""
