"""The statistics of a prepared graph are those of the matrix that the ranks multiply."""

import itertools

import numpy as np
import pytest

from fullgnn.graph import Graph
from fullgnn.kernels.spmm.tiles import DENSITY_BINS, DENSITY_BOUNDS, TILE
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.source import Preparation
from fullgnn.prepare.statistics import Statistics, count_statistics
from fullgnn.reorder.structure import cells
from tests.cases import config

NUM_NODES = 150


def uneven_graph(weighted: bool) -> Graph:
    """A directed graph with some self-loops, whose tiles are of every density."""
    rng = np.random.default_rng(3)
    density = np.geomspace(0.004, 0.9, NUM_NODES)
    row, column = np.nonzero(rng.random((NUM_NODES, NUM_NODES)) < density[:, None] * density[None, ::-1] ** 0.1)
    return Graph.from_edge_index(
        np.stack([row, column]),
        edge_weight=rng.random(len(row)) + 1 if weighted else None,
        features=np.ones((NUM_NODES, 1)),
        labels=np.arange(NUM_NODES) % 2,
        train_mask=np.arange(NUM_NODES) < 9,
    )


def pattern(prepared: PreparedGraph, self_loops: bool) -> np.ndarray:
    """(n, n) bool: A in the order of the run, with its whole diagonal if ``self_loops``."""
    rows = [part.rows.matrix(NUM_NODES).toarray() != 0 for part in prepared.parts()]
    return np.concatenate(rows) | (np.eye(NUM_NODES, dtype=bool) & self_loops)


def tiles_of(adj: np.ndarray, bounds: np.ndarray) -> dict[str, float]:
    """The fraction of the non-zeros by the density of their tile; the tiles of a part begin at its first row."""
    counts = np.zeros(len(DENSITY_BINS))
    for first, last in itertools.pairwise(bounds):
        for top in range(first, last, TILE):
            for left in range(0, NUM_NODES, TILE):
                count = np.count_nonzero(adj[top : min(top + TILE, last), left : left + TILE])
                counts[np.searchsorted(DENSITY_BOUNDS, count / TILE**2)] += count
    return dict(zip(DENSITY_BINS, counts / adj.sum()))


def by_area(adj: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The non-zeros in each block between the ``bounds`` of rows and columns."""
    return np.add.reduceat(np.add.reduceat(adj.astype(int), bounds[:-1]), bounds[:-1], axis=1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
def test_statistics_equal_those_of_the_dense_matrix(self_loops: bool, weighted: bool) -> None:
    graph = uneven_graph(weighted)
    prepared = Preparation(config("partition=nnz"), 4, graph).in_memory()
    statistics, bounds = count_statistics(prepared, self_loops), prepared.facts.partition.bounds
    adj, stored = pattern(prepared, self_loops), pattern(prepared, False)
    assert statistics.tile_density == pytest.approx(tiles_of(adj, bounds), rel=1e-12)
    assert all(statistics.tile_density.values())
    assert np.array_equal(statistics.structure.block_nnz, by_area(adj, bounds))
    assert np.array_equal(statistics.structure.cell_nnz_after, by_area(stored, cells(NUM_NODES).bounds))
    before = by_area(graph.adjacency().toarray() != 0, cells(NUM_NODES).bounds)
    assert np.array_equal(statistics.structure.cell_nnz_before, before)


def test_statistics_are_arrays_and_back() -> None:
    made = count_statistics(Preparation(config("dataset=karate"), 2).in_memory(), self_loops=True)
    again = Statistics.from_arrays(made.to_arrays())
    assert again.tile_density == made.tile_density
    assert all(np.array_equal(value, vars(again.structure)[name]) for name, value in vars(made.structure).items())
