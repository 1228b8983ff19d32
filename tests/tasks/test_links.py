"""Steps, training and metrics of the tasks that find links, on several layouts, against loops over dense matrices.

This is also the test of ``model=lightgcn``.
"""

import dataclasses
import functools
from typing import Any

import networkx
import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import evaluate, fit, predict, set_up
from fullgnn.engine.passes import all_logits
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import FullGNNError
from fullgnn.graph import Graph, load_dataset
from fullgnn.nn import NodeEmbedding
from fullgnn.schemes import ShardedGraph
from fullgnn.tasks.link_ranking import LinkRanking
from fullgnn.tasks.links import pairs_of
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, layout_overrides
from tests.tasks import links as oracle
from tests.tasks.link_training import (
    CASES,
    EPOCHS,
    LAYERS,
    SEED,
    WIDTH,
    case,
    error_of,
    gathered,
    gcn_losses,
    graph_of,
    links_of,
)

LAYOUTS = [
    (1, 1, []),
    (3, 1, ["partition=random", "scheme.shared_memory=false"]),
    (4, 2, ["partition=metis", "reorder=rcm"]),
    (6, 3, ["scheme.split_rows=false"]),
]
"""Processes, replication, and further overrides."""


def user_rows(graph: ShardedGraph) -> np.ndarray:
    """The LOCAL rows of the users of this rank."""
    return np.flatnonzero(graph.block.source_id.numpy() < pairs_of(graph).facts.num_users)


def lists_of(job: Any, output: torch.Tensor, k: int) -> np.ndarray | None:
    """The best items of all users, on rank 0."""
    lists = np.full((len(output), k), -1)
    lists[user_rows(job.graph)] = job.task._rank(output, job.graph, k, user_rows(job.graph), []).ids.numpy()
    return gathered(job, torch.from_numpy(lists))


def results(world: World, cfg: Config, graph: Graph) -> dict[str, Any]:
    """The steps of epoch 2 before training; then losses, vectors, metrics and lists after training."""
    meter = Meter(world.device)
    job = set_up(cfg, world, meter, graph if world.rank == 0 else None)
    state, task, steps = job.state, job.task, []
    for step in task.steps(job.graph, 2):
        state.gradients.zero()
        loss = task.step_loss(all_logits(job.model, job.graph), job.graph, step)
        loss.backward()
        (grad,) = state.gradients.grad_rows
        steps.append((job.scheme.sum_over_rows(loss.detach().clone()).item(), gathered(job, grad)))
    trained = fit(StepRunner(job))
    output = predict(job)
    return {
        "steps": steps,
        "losses": [record.loss for record in trained.epochs],
        "vectors": gathered(job, job.model.embedding.weight),
        "output": gathered(job, output),
        "metrics": evaluate(job),
        "lists": lists_of(job, output, 6) if isinstance(task, LinkRanking) else None,
    }


@functools.cache
def expected(name: str) -> dict[str, Any]:
    links, cfg = links_of(CASES[name][0]), case(name, 1)
    batch_size, ranking = cfg.task["batch_size"], name.startswith("ranking")
    num = 1 if ranking else cfg.task["num_negatives"]
    torch.set_default_dtype(torch.float64)
    embedding = NodeEmbedding(WIDTH, SEED, std=0.1)
    torch.set_default_dtype(torch.float32)
    embedding.place(torch.arange(links.size))
    vectors = embedding.weight

    def step(draws: list[list[int]]) -> torch.Tensor:
        output = oracle.mean_of_powers(vectors, links.adj, LAYERS)
        vectors.grad = None
        loss = oracle.loss_of(output, draws, ranking)
        loss.backward()
        return loss.detach()

    steps = []
    for draws in oracle.batches(links, SEED, 2, batch_size, num):
        loss = step(draws).item()
        steps.append((loss, vectors.grad.numpy().copy()))
    optimizer = torch.optim.Adam([vectors], lr=0.03, weight_decay=0.001)
    losses = []
    for epoch in range(1, EPOCHS + 1):
        of_epoch = []
        for draws in oracle.batches(links, SEED, epoch, batch_size, num):
            of_epoch.append(step(draws).item())
            optimizer.step()
        losses.append(np.mean(of_epoch))
    output = oracle.mean_of_powers(vectors, links.adj, LAYERS).detach().numpy()
    metrics, lists = dict[str, Any](), oracle.best_items(output, links, 6) if ranking else None
    for metric in cfg.task["metrics"]:
        metrics[f"train_{metric}"] = None
        for split, pairs in ((1, links.val), (2, links.test)):
            if ranking:
                value = oracle.ranking_metric(lists, pairs, metric)
            else:
                ranks = np.array(oracle.held_out_ranks(output, links, split, SEED, 7))
                value = float((1 / ranks if metric == "mrr" else ranks <= 2).mean()) if len(ranks) else None
            metrics[f"{('val', 'test')[split - 1]}_{metric}"] = value
    return {
        "steps": steps, "losses": losses, "vectors": vectors.detach().numpy(), "output": output, "metrics": metrics,
        "lists": lists,
    }  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize(("world_size", "replication", "overrides"), LAYOUTS)
def test_steps_training_and_metrics(
    ranks, world_size: int, replication: int, overrides: list[str], every_case: bool
) -> None:
    job, turn = ranks(world_size), LAYOUTS.index((world_size, replication, overrides))
    for number, (name, (kind, _)) in enumerate(CASES.items()):
        if not every_case and number % 3 != turn % 3:
            continue  # each case on one layout with several ranks
        exact, outcomes = expected(name), job(results, case(name, replication, *overrides), graph_of(kind))
        first = outcomes[0]
        assert len(first["steps"]) == len(exact["steps"])
        for (loss, grad), (other, other_grad) in zip(first["steps"], exact["steps"]):
            assert loss == pytest.approx(other, abs=1e-13), name
            np.testing.assert_allclose(grad, other_grad, rtol=0, atol=1e-13, err_msg=name)
        np.testing.assert_allclose(first["losses"], exact["losses"], rtol=0, atol=1e-11, err_msg=name)
        for key in ("vectors", "output"):
            np.testing.assert_allclose(first[key], exact[key], rtol=0, atol=1e-9, err_msg=name)
        if exact["lists"] is not None:
            np.testing.assert_array_equal(first["lists"][: len(exact["lists"])], exact["lists"])
        for rank in outcomes:
            assert [step[0] for step in rank["steps"]] == [step[0] for step in first["steps"]]
            assert rank["losses"] == first["losses"] and rank["metrics"] == first["metrics"]
            assert rank["metrics"].keys() == exact["metrics"].keys()
            for metric, value in rank["metrics"].items():
                other = exact["metrics"][metric]
                assert value == (other if other is None else pytest.approx(other, abs=1e-12)), (name, metric)


def test_a_pair_without_a_negative_is_not_trained_with(ranks) -> None:
    """Vectors near zero have scores near zero, whose loss is log 2."""
    for name in ("prediction, few negatives", "ranking, few negatives", "ranking, few negatives, batches"):
        (outcome,) = ranks(1)(results, case(name, 1), graph_of(CASES[name][0]))
        assert len(outcome["steps"]) == len(expected(name)["steps"])
        for loss, _ in outcome["steps"]:
            assert loss == pytest.approx(np.log(2), abs=0.02)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("world_size", "replication", "others"), LAYOUTS[1:])
def test_a_gcn_with_dropout_learns_links_on_every_layout(
    ranks, world_size: int, replication: int, others: list[str]
) -> None:
    """Edges are held out of the graph; each step has dropout masks of its own."""
    graph = dense_graph("symmetric").graph()
    overrides = ["task=link_prediction", "task.batch_size=15", "task.test_fraction=0.2", "task.num_candidates=5"]
    overrides += ["task.channels=6", "runtime.dtype=float64", "train.epochs=4", "model.dropout=0.3"]
    (exact,) = ranks(1)(gcn_losses, config(*overrides), graph)
    assert exact[1]["test_mrr"] is not None and exact[1]["train_mrr"] is None
    (without,) = ranks(1)(gcn_losses, config(*overrides, "model.dropout=0"), graph)
    assert abs(without[0][0] - exact[0][0]) > 1e-4
    cfg = config(*layout_overrides(replication), *overrides, *others)
    for losses, metrics in ranks(world_size)(gcn_losses, cfg, graph):
        np.testing.assert_allclose(losses, exact[0], rtol=0, atol=1e-12)
        assert metrics == pytest.approx(exact[1])


WRONG = {
    "task=link_ranking": "dataset symmetric: task=link_ranking needs users and items: choose dataset=lastfm",
    "model=lightgcn": "model=lightgcn learns links, and task=node_classification does not: choose task=link_ranking",
    "task=link_ranking task.batch_size=0": "task.batch_size=0 is too small: it must be at least 1",
    "task=link_ranking task.channels=0": "task.channels=0 is too small",
    "task=link_ranking task.val_fraction=1": "task.val_fraction=1.0 is out of range: it must lie in [0, 1)",
    "task=link_ranking task.metrics=[recall]": "task.metrics=['recall']: recall is not one of recall@20, ndcg@20",
    "task=link_ranking task.metrics=[]": "task.metrics is empty: give at least one",
    "task=link_prediction task.metrics=[hits@0]": "task.metrics=['hits@0']: hits@0 is not one of mrr, hits@20",
    "task=link_prediction task.num_candidates=0": "task.num_candidates=0 is too small",
    "task=link_prediction task.num_negatives=0": "task.num_negatives=0 is too small",
    "task=link_prediction task.val_fraction=0.6 task.test_fraction=0.4": "task.val_fraction + task.test_fraction is at",
    "task=link_prediction model=lightgcn model.num_layers=0": "model.num_layers=0 is too small",
    "task=link_prediction model=lightgcn model.init_std=0": "model.init_std=0.0 is out of range",
}


def test_user_errors_are_one_line_on_every_rank(ranks) -> None:
    graph, job = graph_of("symmetric"), ranks(3)
    for overrides, message in WRONG.items():
        for error in job(error_of, config(*overrides.split()), graph):
            assert error.startswith(message) and "\n" not in error, overrides


def test_a_graph_keeps_its_links(tmp_path) -> None:
    for kind in ("bipartite", "symmetric", "directed"):
        graph = graph_of(kind)
        graph.save(tmp_path / "graph.npz")
        node = config("dataset=npz").dataset | {"path": str(tmp_path / "graph.npz")}
        again = load_dataset(node)
        assert again.num_users == graph.num_users
        np.testing.assert_array_equal(again.val_links, graph.val_links)
        np.testing.assert_array_equal(again.test_links, graph.test_links)
        perm = np.random.default_rng(0).permutation(29)
        moved = graph.permute(perm)
        assert moved.num_users is None
        pairs = {tuple(perm[pair]) for pair in moved.test_links.T}
        assert pairs == {tuple(pair) for pair in graph.test_links.T}
        kept = graph.permute(np.concatenate([np.arange(12)[::-1], np.arange(12, 29)]))
        assert kept.num_users == graph.num_users


def test_users_above_items_given_once() -> None:
    graph, pairs = graph_of("bipartite"), np.array(links_of("bipartite").train).T
    given = dict(num_users=12, val_links=graph.val_links, test_links=graph.test_links)
    edges = networkx.Graph()
    edges.add_nodes_from(range(29))
    edges.add_edges_from(pairs.T.tolist())
    for made in (
        Graph.from_edge_index(pairs, num_nodes=29, **given).symmetrized(),
        Graph.from_networkx(edges, **given),
    ):
        np.testing.assert_array_equal(made.adjacency().toarray(), graph.adjacency().toarray())
        assert made.num_users == 12
        for name in ("val_links", "test_links"):
            np.testing.assert_array_equal(getattr(made, name), getattr(graph, name))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_users": 0}, "num_users is 0 and the graph has 29 nodes"),
        ({"num_users": 13}, "num_users is 13, and an edge joins two users or two items"),
        ({"test_links": [[0], [29]]}, "node id 29 in test_links is out of range"),
        ({"test_links": [[3], [3]]}, "test_links joins node 3 with itself"),
        ({"test_links": [[13], [0]]}, "test_links must have users above items"),
        ({"test_links": [[3], [12]]}, r"test_links has the pair \(3, 12\), which the adjacency has too"),
        ({"test_links": [[7, 7], [20, 20]]}, "test_links has 1 pairs more than once"),
        ({"test_links": [0, 1]}, r"test_links has shape \(2,\)"),
        ({"test_links": [[7], [20]], "val_links": [[7], [20]]}, "val_links and test_links have 1 pairs in common"),
    ],
)
def test_wrong_links(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FullGNNError, match=message):
        dataclasses.replace(graph_of("bipartite"), **{"val_links": None, "test_links": None} | changes)
