"""Sampling by separate operators: the same graph as the fused sampler's, in another numbering."""

import numpy as np
import pytest
import torch

from fullgnn.bench.separate import OperatorTimes, Separate
from fullgnn.sampling.neighbors import ALL, NeighborSampler
from tests.sampling.neighbors import chosen, random_graph


@pytest.mark.sample(10)
@pytest.mark.parametrize("fast", [False, True], ids=["toBlock", "toBlockFast"])
@pytest.mark.parametrize("fanouts", [[3], [5, 4, 3], [ALL, 2], [70, 1]], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_edges_are_those_of_the_fused_sampler(fast: bool, fanouts: list[int], threads: int) -> None:
    indptr, indices = random_graph(700, 12)
    separate, fused = Separate(indptr, indices, fanouts, 7, fast), NeighborSampler(indptr, indices, fanouts, seed=7)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for epoch in (1, 2, 3):  # nothing of a batch is left behind for the next one
            targets = chosen(700, 40, seed=epoch).astype(np.int32)
            hops, nodes = fused.sample(targets, epoch), targets
            for pairs, hop in zip(separate.sample(targets, epoch), hops, strict=True):
                assert pairs.num_targets == len(nodes)
                assert np.array_equal(pairs.sources[: len(nodes)], nodes)  # targets first, in their order
                assert np.array_equal(np.sort(pairs.sources), hop.sources)
                edges = pairs.sources[pairs.dst].astype(np.int64) * 700 + pairs.sources[pairs.src]
                rows = np.repeat(hop.sources[hop.target_index], np.diff(hop.indptr)).astype(np.int64)
                assert np.array_equal(np.sort(edges), np.sort(rows * 700 + hop.sources[hop.indices]))
                nodes = pairs.sources
    finally:
        torch.set_num_threads(before)


def test_a_target_may_have_far_more_neighbours_than_the_mean_node() -> None:
    separate = Separate(np.array([0, *[8] * 9]), np.arange(1, 9, dtype=np.int32), [ALL], fast=True)
    (pairs,) = separate.sample(np.zeros(1, np.int32), 1)
    assert pairs.sources.tolist() == [*range(9)]


def test_searches_are_counted() -> None:
    """The graph has 5 nodes with 4 neighbours each: the second hop finds nothing new."""
    indptr, indices = np.array([0, 4, 8, 12, 16, 20]), np.array([[j for j in range(5) if j != i] for i in range(5)])
    separate = Separate(indptr, indices.ravel().astype(np.int32), [ALL, ALL])
    separate.sample(np.array([2], np.int32), 1)
    # Hop 1: 1 target in both tables, 4 edges inserted, then both ends of 4 edges; hop 2: 5 targets and 20 edges.
    assert separate.spent.searches == (2 + 4 + 8) + (10 + 20 + 40)
    assert separate.spent.inserted == (1 + 5) + (5 + 5)
    details = separate.spent.details()
    assert 0 < details["block_share"] < 1 and details["redundant_share"] == 1 - 16 / 84
    assert OperatorTimes(sample_s=3, block_s=1).details() == {"block_share": 0.25}
