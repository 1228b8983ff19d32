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
    found, unplanned = layouts_of(graph, cfg)
    assert unplanned == ""
    sizes = [(1, 1), (2, 1), (4, 1), (4, 2), (8, 1), (8, 2)]
    assert [(one.world_size, one.replication) for one in found] == sizes
    for one in found:
        num_parts = one.world_size // one.replication
        scheme = dict(cfg.scheme) | {"replication": one.replication, "fetch": "stages"}
        same = replace(cfg, scheme=scheme)
        prepared = Preparation(same, num_parts, graph).in_memory()
        job = counted_job(same, one.world_size, prepared)
        expected = predict(job, _hardware(cfg))
        assert one.tensor_bytes == expected.peak_tensor_bytes
        received = np.sum(list(expected.comm_bytes_per_rank.values()), axis=0)
        assert one.received_bytes == received.max()
        assert one.nnz == job.products["adj"].rank_nnz.max()
        assert one.rows == prepared.facts.partition.sizes.max()
        if num_parts == 1:
            assert one.edge_cut is None and one.halo_rows is None
            continue
        assert one.edge_cut == edge_cut(prepared.facts, cfg.self_loops)
        bounds, dense = prepared.facts.partition.bounds, graph.adjacency(bool).toarray()
        halos = []
        for first, last in itertools.pairwise(bounds):
            reads = dense[first:last].any(axis=0)
            reads[first:last] = False
            halos.append(reads.sum())
        assert one.halo_rows == max(halos)


def test_what_cannot_be_planned_says_why_and_has_the_rows_all_the_same() -> None:
    bare = Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=3, features=np.eye(3))
    found, unplanned = layouts_of(bare, run())
    assert unplanned == "the graph has no labels and no train_mask"
    assert {one.tensor_bytes for one in found} == {None} and found[1].edge_cut is not None
    found, unplanned = layouts_of(bare, run("task=link_prediction"))
    assert "python -m fullgnn.plan" in unplanned and len(found) == 6
    featureless = random_graph(0, features=None)
    found, unplanned = layouts_of(featureless, run())
    assert "\n" not in unplanned and found[0].nnz > 0


def test_the_run_is_named() -> None:
    assert run_of(run("model=gat")) == "model=gat task=node_classification on CPUs"
