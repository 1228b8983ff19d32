"""The training problem, and the trainings of the peers with modules that stand in for missing libraries."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from fullgnn.bench.config import load_bench
from fullgnn.bench.harness import set_up
from fullgnn.bench.peers import candidates, epoch_makers, pyg, training
from fullgnn.bench.peers.training import PeerLayer, launcher, link_launcher, stacked, trainer
from fullgnn.bench.problem import Problem, as_problem, first_weights, load_graph, peer_weights
from fullgnn.graph import Graph


@pytest.fixture(scope="module")
def problem() -> Problem:
    cfg = load_bench("graph=karate", "hidden=5")
    return as_problem(cfg, load_graph(cfg), torch.device("cpu"))


def test_every_torch_training_and_two_modules_have_the_same_losses(problem: Problem) -> None:
    weights = first_weights(problem.widths, seed=0)
    steps, missing = set_up(candidates(epoch_makers("gcn"), ["torch"], problem, weights))
    assert not missing
    adj = training.normalized(problem)
    layer = PeerLayer(lambda library, weight: library.Linear(*weight.shape), ["weight.T"])
    model = stacked(layer, torch.nn, problem, weights, lambda conv, h: conv(adj @ h))
    step = trainer(model, problem)
    expected = [step() for _ in range(4)]
    assert expected[-1] < expected[0]
    for method in steps:
        assert [method.run()() for _ in range(4)] == pytest.approx(expected, abs=1e-5)


def test_dropout_on_the_hidden_layer_alone(problem: Problem) -> None:
    weights = first_weights(problem.widths, seed=0)
    losses = {}
    for rate in (0.0, 0.5):
        torch.manual_seed(0)
        model = training.gcn(problem, weights, training.symmetric, "(AH)W", rate)
        losses[rate] = launcher(model, problem)()()
    assert losses[0.5] != losses[0.0]


@pytest.mark.parametrize("num_users", [None, 17])
def test_lightgcn_of_every_peer(num_users: int | None) -> None:
    cfg = load_bench("graph=karate", "gnn=lightgcn", "hidden=5", "seed=2")
    graph = load_graph(cfg)
    if num_users is not None:  # an edge between each of the first half and some of the others
        ends = np.repeat(np.arange(17), 3), 17 + np.arange(51) % 17
        edges = np.concatenate([ends, ends[::-1]], axis=1)
        graph = Graph.from_edge_index(edges, num_nodes=34, num_users=num_users)
    problem = as_problem(cfg, graph, torch.device("cpu"))
    assert problem.batch_size is None
    weights = peer_weights(problem, seed=2, model="lightgcn")
    adj = torch.from_numpy(graph.adjacency(np.float32).toarray())
    scale = adj.sum(1).rsqrt()
    adj, expected = scale[:, None] * adj * scale, weights[0]
    expected = sum(torch.linalg.matrix_power(adj, k) @ weights[0] for k in range(4)) / 4
    makers = {**training.MODELS["lightgcn"], **pyg.MODELS["lightgcn"]}
    assert len(makers) == 4
    for make in makers.values():
        for batch_size in (None, 20):
            model = make(problem, weights)
            torch.testing.assert_close(model(), expected, rtol=1e-5, atol=1e-6)
            step = link_launcher(model, dataclasses.replace(problem, batch_size=batch_size))
            losses = [step()() for _ in range(30)]
            assert losses[0] == pytest.approx(math.log(2), abs=0.03) and losses[-1] < losses[0] - 0.03


def test_the_problem_has_every_self_loop_once() -> None:
    cfg = load_bench("graph=karate")
    graph = load_graph(cfg)
    problem = as_problem(cfg, graph, torch.device("cpu"))
    assert problem.block.nnz == graph.num_edges + graph.num_nodes and problem.hidden == 128
    for node in range(graph.num_nodes):
        row = problem.block.indices[problem.block.indptr[node] : problem.block.indptr[node + 1]].tolist()
        neighbours = graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
        assert row == sorted([*neighbours, node])
