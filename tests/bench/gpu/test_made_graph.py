"""The generated graph of an item: the training problem on the graph, and the largest scale."""

import pytest
import torch

from fullgnn.bench.gpu.made_graph import SCALES, largest_scale
from fullgnn.bench.gpu.training import make_problem
from fullgnn.graph.generate_on_device import random_graph
from fullgnn.graph.lookalikes import LOOKALIKES

NUM_NODES, NUM_ENTRIES = 6000, 180_000


def test_labels_follow_the_nodes():
    shape = LOOKALIKES["archaea-like"]
    graph = random_graph(NUM_NODES, NUM_ENTRIES, 10, 0.15, 3, torch.device("cpu"))
    problem = make_problem(graph, graph.csr(graph.perm), graph.perm, shape)
    assert problem.features.shape == (NUM_NODES, 602) and problem.features.dtype == torch.float32
    assert torch.equal(problem.labels, graph.community[graph.perm])
    assert len(problem.train_index) / NUM_NODES == pytest.approx(0.6, abs=0.03)
    assert problem.widths == [602, 128, 10] and problem.graph.num_edges == 0


def test_the_largest_scale_that_fits():
    assert largest_scale(lambda scale: 100 * scale <= 30) == 0.25
    assert largest_scale(lambda scale: True) == 1.0
    assert largest_scale(lambda scale: False) == min(SCALES)
