import logging
import sys
from functools import partial

import numpy as np
import pymetis
import pytest
from scipy import sparse

from fullgnn import partition, reorder
from fullgnn.errors import ConfigError, PartitionError
from fullgnn.partition import Cut, Partition
from fullgnn.partition.nnz import row_weight
from fullgnn.partition.partition import imbalance
from fullgnn.reorder import two_level

TRAIN = np.arange(1000) % 2 == 0
METIS = partial(reorder.metis, cluster_size=20)


@pytest.mark.parametrize("method", [reorder.none, reorder.rcm, METIS])
@pytest.mark.parametrize("partitioner", [partition.contiguous, partition.random, partition.nnz, partition.metis])
def test_block_scope_partitions_first_and_orders_inside(partitioner, method, planted) -> None:
    order = two_level(planted, TRAIN, partitioner, method, "block", 4, None, 3)
    cut = partitioner(planted, TRAIN, 4, 3)
    assert np.array_equal(order.partition.bounds, cut.partition.bounds)
    for rows in map(cut.partition.slice, range(4)):
        assert np.array_equal(np.sort(order.perm[rows]), cut.perm[rows])
    assert order.used.partition == partitioner.__name__
    assert order.used.reorder == getattr(method, "func", method).__name__
    assert order.used.reorder_num_blocks == 4 and order.used.partition_time_s >= 0 and order.used.reorder_time_s >= 0


def test_whole_scope_orders_first_and_cuts_the_order(planted) -> None:
    for partitioner in (partition.contiguous, partition.nnz):
        order = two_level(planted, TRAIN, partitioner, reorder.degree, "whole", 4, None, 3)
        assert np.array_equal(order.perm, reorder.degree(planted, 3))
        renumbered = planted[order.perm][:, order.perm].tocsr()
        assert np.array_equal(order.partition.bounds, partitioner(renumbered, TRAIN, 4, 3).partition.bounds)
        used = order.used
        assert (used.partition, used.reorder, used.reorder_num_blocks) == (partitioner.__name__, "degree", 1)
    assert imbalance(np.add.reduceat(row_weight(renumbered), order.partition.bounds[:-1])) <= 1.05


def test_contiguous_parts_may_be_cut_from_other_blocks(planted) -> None:
    order = two_level(planted, TRAIN, partition.contiguous, reorder.shuffle, "block", 4, 2, 3)
    assert np.array_equal(np.sort(order.perm[:500]), np.arange(500))
    assert not np.array_equal(np.sort(order.perm[:250]), np.arange(250))
    assert order.used.reorder_num_blocks == 2
    assert np.array_equal(order.partition.bounds, Partition.equal(1000, 4).bounds)


def test_more_blocks_than_nodes_are_one_a_node(planted) -> None:
    order = two_level(planted, TRAIN, partition.contiguous, reorder.degree, "block", 4, 10**9, 0)
    assert order.used.reorder_num_blocks == len(TRAIN) and np.array_equal(order.perm, np.arange(len(TRAIN)))


@pytest.mark.parametrize(
    ("partitioner", "scope", "num_blocks", "message"),
    [
        (partition.metis, "whole", None, "partition=metis does not return: choose partition=contiguous, partition=nnz"),
        (partial(partition.metis, tolerance=0.1), "whole", None, "partition=metis"),
        (partition.random, "whole", None, "partition=random"),
        (partition.nnz, "block", 4, "reorder.num_blocks=4 needs partition=contiguous, not nnz: leave one"),
        (partition.metis, "block", 4, "reorder.num_blocks=4 needs partition=contiguous, not metis: leave one"),
        (partition.contiguous, "whole", 2, "reorder.scope=whole orders one block, not reorder.num_blocks=2"),
        (partition.contiguous, "block", 0, "reorder.num_blocks=0 is out of range"),
        (partition.contiguous, "rows", None, "reorder.scope=rows is not known: choose one of block, whole"),
    ],
)
def test_contradictions_are_refused_in_one_line(partitioner, scope, num_blocks, message, planted) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        two_level(planted, TRAIN, partitioner, reorder.none, scope, 4, num_blocks, 0)
    assert "\n" not in str(error.value)


def wrong(adj: sparse.csr_array, train_mask: np.ndarray, num_parts: int, seed: int) -> Cut:
    return Cut.consecutive(Partition.equal(adj.shape[0], num_parts + 1), used="wrong")


def test_a_partitioner_with_another_number_of_parts_is_refused(planted) -> None:
    with pytest.raises(PartitionError, match="wrong cut 1000 nodes into 5 parts: cut all 1000 into 4"):
        two_level(planted, TRAIN, wrong, reorder.none, "block", 4, None, 0)


@pytest.mark.parametrize("cause", ["not installed", "raises"])
def test_where_metis_fails_the_result_says_what_was_used(cause: str, planted, monkeypatch, caplog) -> None:
    if cause == "not installed":
        monkeypatch.setitem(sys.modules, "pymetis", None)
    else:
        monkeypatch.setattr(pymetis, "part_graph", lambda *args, **kwargs: 1 / 0)
    with caplog.at_level(logging.INFO):
        order = two_level(planted, TRAIN, partition.metis, METIS, "block", 4, None, 0)
    assert (order.used.partition, order.used.reorder) == ("nnz", "rcm")
    assert np.array_equal(order.perm, two_level(planted, TRAIN, partition.nnz, reorder.rcm, "block", 4, None, 0).perm)
    for record, message in zip(
        caplog.records, ("partition=metis falls back to nnz", "reorder=metis falls back to rcm")
    ):
        assert record.levelno == logging.WARNING and message in record.message and "reinstall pymetis" in record.message
    assert len(caplog.records) == 2


def test_metis_that_fails_on_one_part_names_both_orders(planted, monkeypatch) -> None:
    part_graph, calls = pymetis.part_graph, iter(range(2))
    monkeypatch.setattr(pymetis, "part_graph", lambda *args, **kw: part_graph(*args, **kw) if next(calls) else 1 / 0)
    order = two_level(planted, TRAIN, partition.contiguous, METIS, "block", 2, None, 0)
    assert order.used.reorder == "rcm+metis"
    assert np.array_equal(np.sort(order.perm), np.arange(1000))


@pytest.mark.parametrize("scope", ["block", "whole"])
def test_tiny_graphs_and_more_parts_than_nodes(scope: str, tiny_graph) -> None:
    train_mask = np.zeros(tiny_graph.shape[0], bool)
    for partitioner in (partition.contiguous, partition.nnz, *((partition.metis,) if scope == "block" else ())):
        order = two_level(tiny_graph, train_mask, partitioner, METIS, scope, 9, None, 0)
        assert np.array_equal(np.sort(order.perm), np.arange(tiny_graph.shape[0])) and order.partition.num_parts == 9
