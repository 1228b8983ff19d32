"""Degrees, components and one-way arcs, against dense matrices, NumPy's percentiles and SciPy's components."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fullgnn.graph import Graph
from fullgnn.report.inspection.passes import Passes
from fullgnn.report.inspection.structure import degrees, structure_of
from tests.report.inspection.graphs import random_graph


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_the_dense_matrix(seed: int, symmetric: bool) -> None:
    graph = random_graph(seed, 60, symmetric, density=0.02)
    dense = graph.adjacency(bool).toarray()
    off = dense & ~np.eye(60, dtype=bool)
    structure = structure_of(graph, Passes.over(graph))
    assert structure.symmetric == symmetric
    assert structure.self_loops == np.trace(dense) > 0
    assert structure.one_way_arcs == np.count_nonzero(off & ~off.T) and (structure.one_way_arcs == 0) == symmetric
    assert structure.isolated_nodes == np.count_nonzero(~(dense.any(axis=0) | dense.any(axis=1))) > 0
    alone = [k for k in range(60) if dense[k].sum() == dense[:, k].sum() == dense[k, k] == 1]
    assert structure.only_self_loop == len(alone) and 1 in alone
    number, of_node = connected_components(csr_array(dense), directed=True, connection="weak")
    sizes = np.sort(np.bincount(of_node))[::-1]
    assert structure.num_components == number > 1
    assert structure.largest_components == tuple(sizes[:5].tolist())
    assert structure.in_degrees == degrees(dense.sum(axis=1)) and structure.out_degrees == degrees(dense.sum(axis=0))


@pytest.mark.parametrize("degree", [[0], [3], [0, 1], [1, 1, 2, 3, 4, 7, 8, 200, 0, 0], list(range(1000))])
def test_percentiles_and_histogram(degree: list[int]) -> None:
    summary, given = degrees(np.array(degree)), np.array(degree)
    shares = np.percentile(given, [50, 90, 99], method="inverted_cdf")
    assert [summary.median, summary.p90, summary.p99] == shares.tolist()
    assert (summary.min, summary.max, summary.mean) == (given.min(), given.max(), pytest.approx(given.mean()))
    assert summary.zero_share == np.mean(given == 0)
    bounds = [0, *(1 << k for k in range(20))]
    counts = [np.count_nonzero((low <= given) & (given < high)) for low, high in itertools.pairwise(bounds)]
    assert sum(summary.histogram) == len(degree) and list(summary.histogram) == counts[: len(summary.histogram)]


def test_weights_and_graphs_without_edges() -> None:
    weighted = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=4, edge_weight=[0.5, -2.0, 3.0])
    structure = structure_of(weighted, Passes.over(weighted))
    assert (structure.weights, structure.negative_weights, structure.one_way_arcs) == ((-2.0, 3.0), 1, 3)
    empty = Graph.from_edge_index(np.empty((2, 0), int), num_nodes=7)
    structure = structure_of(empty, Passes.over(empty))
    assert (structure.num_components, structure.isolated_nodes, structure.largest_components) == (7, 7, (1, 1, 1, 1, 1))
    assert structure.in_degrees.zero_share == 1 and structure.in_degrees.histogram == (7,)


def test_a_long_path_is_one_component_in_any_order() -> None:
    """Union-find with deep trees: the oracle is that a path is connected."""
    perm = np.random.default_rng(0).permutation(20_000)
    graph = Graph.from_edge_index(np.stack([perm[:-1], perm[1:]]), num_nodes=20_000)
    structure = structure_of(graph, Passes.over(graph))
    assert (structure.num_components, structure.largest_components) == (1, (20_000,))
