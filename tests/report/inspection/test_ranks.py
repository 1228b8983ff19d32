"""What ranks would hold: the same as the planner says of a graph that is really cut, and what a run counts."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fullgnn.config import Config
from fullgnn.costs.predict import predict
from fullgnn.costs.statistics import counted_job
from fullgnn.engine.run import with_supported_optimizations
from fullgnn.graph import Graph
from fullgnn.partition.facts import edge_cut
from fullgnn.prepare.source import Preparation
from fullgnn.report.inspection.ranks import _hardware, layouts_of, run_of
from tests.cases import config
from tests.report.inspection.graphs import random_graph


def run(*keys: str) -> Config:
    return with_supported_optimizations(config("runtime.device=cpu", "runtime.threads=1", *keys))


@pytest.mark.sample(3)
@pytest.mark.parametrize("keys", [[], ["model=gat"], ["model=sage", "self_loops=false"]], ids=["gcn", "gat", "sage"])
@pytest.mark.parametrize(("num_nodes", "symmetric"), [(61, False), (61, True), (5, False)])
def test_they_are_those_of_a_graph_that_is_cut(keys: list[str], num_nodes: int, symmetric: bool) -> None:
    graph, cfg = random_graph(3, num_nodes, symmetric, density=0.1), run(*keys)
    if num_nodes == 5:  # fewer nodes than parts
        graph = replace(graph, train_mask=graph.labels >= 0, val_mask=None, test_mask=None)
    layouts, unplanned = layouts_of(graph, cfg)
    assert unplanned == ""
    sizes = [(1, 1), (2, 1), (4, 1), (4, 2), (8, 1), (8, 2)]
    assert [(layout.world_size, layout.replication) for layout in layouts] == sizes
    for layout in layouts:
        num_parts = layout.world_size // layout.replication
        scheme = dict(cfg.scheme) | {"replication": layout.replication, "fetch": "stages"}
        same = replace(cfg, scheme=scheme)
        prepared = Preparation(same, num_parts, graph).in_memory()
        job = counted_job(same, layout.world_size, prepared)
        expected = predict(job, _hardware(cfg))
        assert layout.tensor_bytes == expected.peak_tensor_bytes
        received = np.sum(list(expected.comm_bytes_per_rank.values()), axis=0)
        assert layout.received_bytes == received.max()
        assert layout.nnz == job.products["adj"].rank_nnz.max()
        assert layout.rows == prepared.facts.partition.sizes.max()
        if num_parts == 1:
            assert layout.edge_cut is None and layout.halo_rows is None
            continue
        assert layout.edge_cut == edge_cut(prepared.facts, cfg.self_loops)
        bounds, dense = prepared.facts.partition.bounds, graph.adjacency(bool).toarray()
        halos = []
        for first, last in itertools.pairwise(bounds):
            reads = dense[first:last].any(axis=0)
            reads[first:last] = False
            halos.append(reads.sum())
        assert layout.halo_rows == max(halos)


def test_what_cannot_be_planned_says_why_and_has_the_rows_all_the_same() -> None:
    bare = Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=3, features=np.eye(3))
    layouts, unplanned = layouts_of(bare, run())
    assert unplanned == "the graph has no labels and no train_mask"
    assert {layout.tensor_bytes for layout in layouts} == {None} and layouts[1].edge_cut is not None
    layouts, unplanned = layouts_of(bare, run("task=link_prediction"))
    assert "python -m fullgnn.plan" in unplanned and len(layouts) == 6
    featureless = random_graph(0, features=None)
    layouts, unplanned = layouts_of(featureless, run())
    assert "\n" not in unplanned and layouts[0].nnz > 0


def test_the_run_is_named() -> None:
    assert run_of(run("model=gat")) == "model=gat task=node_classification on CPUs"
