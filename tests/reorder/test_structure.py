"""The counts that heat maps show are compared with sums over the dense matrix."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

from fullgnn.graph import Graph
from fullgnn.prepare.source import Preparation
from fullgnn.prepare.statistics import count_structure
from fullgnn.reorder.structure import MAX_CELLS, cells
from tests.cases import config


def directed(num_nodes: int) -> tuple[np.ndarray, Graph]:
    rng = np.random.default_rng(num_nodes)
    dense = rng.random((num_nodes, num_nodes)) < 0.1
    labels = np.arange(num_nodes) % 2
    features = rng.standard_normal((num_nodes, 3))
    return dense, Graph.from_scipy(csr_array(dense), features=features, labels=labels, train_mask=labels == 0)


def sums(dense: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The sum of each block of ``dense``."""
    return np.array(
        [[dense[a:b, c:d].sum() for c, d in itertools.pairwise(bounds)] for a, b in itertools.pairwise(bounds)]
    )


@pytest.mark.parametrize(("num_nodes", "num_cells"), [(1, 1), (29, 29), (64, 64), (150, MAX_CELLS)])
def test_cells_cut_the_nodes_evenly_and_count_every_edge(num_nodes: int, num_cells: int) -> None:
    dense, graph = directed(num_nodes)
    bounds = cells(num_nodes).bounds
    assert len(bounds) == num_cells + 1 and np.ptp(np.diff(bounds)) <= 1
    counted = count_structure(Preparation(config(), 1, graph).in_memory(), self_loops=False).cell_nnz_before
    assert counted.dtype == np.int64 and np.array_equal(counted, sums(dense, bounds))


@pytest.mark.parametrize("num_parts", [1, 3])
def test_a_prepared_graph_knows_where_its_non_zeros_were_and_are(num_parts: int) -> None:
    dense, graph = directed(150)
    prepared = Preparation(config("reorder=degree", "partition=random"), num_parts, graph).in_memory()
    structure = count_structure(prepared, self_loops=True)
    order = np.concatenate([part.node_id for part in prepared.parts()])
    assert not np.array_equal(order, np.arange(150))
    assert np.array_equal(structure.cell_bounds, cells(150).bounds)
    assert np.array_equal(structure.cell_nnz_before, sums(dense, structure.cell_bounds))
    ordered = dense[np.ix_(order, order)]
    assert np.array_equal(structure.cell_nnz_after, sums(ordered, structure.cell_bounds))
    assert np.array_equal(structure.part_bounds, [150 * part // num_parts for part in range(num_parts + 1)])
    assert np.array_equal(structure.block_nnz, sums(ordered | np.eye(150, dtype=bool), structure.part_bounds))
    assert {array.dtype for array in vars(structure).values()} == {np.dtype(np.int64)}
