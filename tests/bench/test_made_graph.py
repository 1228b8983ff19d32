"""The graph that is made on the device: the training problem on the graph, and the largest scale."""

import pytest
import torch

from fullgnn.bench.config import load_bench
from fullgnn.bench.harness import Cases
from fullgnn.bench.problem import SCALES, MadeGraph, largest_scale, made_problem, make_graph
from fullgnn.graph.generate_on_device import random_graph
from fullgnn.graph.lookalikes import LOOKALIKES

NUM_NODES, NUM_ENTRIES = 6000, 180_000


def test_labels_follow_the_nodes():
    shape = LOOKALIKES["archaea-like"]
    graph = random_graph(NUM_NODES, NUM_ENTRIES, 10, 0.15, 3, torch.device("cpu"))
    problem = made_problem(MadeGraph(shape, graph, graph.perm, graph.csr(graph.perm), {}))
    assert problem.features.shape == (NUM_NODES, 602) and problem.features.dtype == torch.float32
    assert torch.equal(problem.labels, graph.community[graph.perm])
    assert len(problem.train_index) / NUM_NODES == pytest.approx(0.6, abs=0.03)
    assert problem.widths == [602, 128, 10] and problem.graph.num_edges == problem.block.nnz


def test_a_graph_says_how_it_was_made(monkeypatch):
    """The size is the largest for which there is time; without METIS the order is the generator's."""
    monkeypatch.setattr("fullgnn.bench.problem.find_spec", lambda name: None)
    made = make_graph(load_bench("op=sweep", "graph=products-like", "scale=0.02"), Cases(100, torch.device("cpu")))
    facts = made.facts
    assert facts["scale"] == 0.02 and "scale_reason" not in facts and made.block.nnz == facts["nnz"] > 500_000
    assert facts["order"] == "the generator's communities" and "not installed" in facts["order_reason"]
    begun = []
    monkeypatch.setattr("fullgnn.bench.problem.PROBE_SCALE", 0.02)
    cfg = load_bench("op=sweep", "graph=products-like")
    small = make_graph(cfg, Cases(1e-6, torch.device("cpu")), prepare=begun.append)
    assert small.facts["scale"] == min(SCALES) and "0 s allowed" in small.facts["scale_reason"] and len(begun) == 2


def test_the_largest_scale_that_fits():
    assert largest_scale(lambda scale: 100 * scale <= 30) == 0.25
    assert largest_scale(lambda scale: True) == 1.0
    assert largest_scale(lambda scale: False) == min(SCALES)
