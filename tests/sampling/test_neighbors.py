"""Sampled hops against a plain reference, their properties, and the distribution of the draws."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats

from fullgnn.errors import ConfigError, DataError
from fullgnn.sampling.neighbors import ALL, NeighborSampler
from tests.sampling import reference
from tests.sampling.neighbors import SEED, chosen, equal, random_graph, random_weights

HOPS = ([3], [4, 3], [5, 4, 3], [ALL, 2], [2, ALL, 70])


@pytest.mark.sample(19)
@pytest.mark.parametrize("fanouts", HOPS, ids=str)
@pytest.mark.parametrize("replace", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("by_weight", [False, True], ids=["uniform", "weighted"])
def test_hops_are_those_of_the_reference(fanouts: list[int], replace: bool, by_weight: bool) -> None:
    indptr, indices = random_graph(500, 12)
    weight = random_weights(indptr) if by_weight else None
    targets = np.union1d(chosen(500, 40), [0, 10, 250])  # one isolated, one whose weights are 0, one that reads all
    sampler = NeighborSampler(indptr, indices, fanouts, weight, replace, by_weight, SEED, keep_places=True)
    for epoch in (1, 2):
        hops = sampler.sample(targets, epoch)
        wanted = reference.sample(indptr, indices, fanouts, targets, SEED, epoch, replace, weight)
        frontier = targets
        for hop, edges in zip(hops, wanted, strict=True):
            assert hop.sources[hop.target_index].tolist() == frontier.tolist() == list(edges)
            assert hop.places is not None and hop.places.tolist() == [p for row in edges.values() for p in row]
            assert np.diff(hop.indptr).tolist() == [len(row) for row in edges.values()]
            assert hop.sources[hop.indices].tolist() == indices[hop.places].tolist()
            assert hop.sources.tolist() == sorted({*frontier.tolist(), *indices[hop.places].tolist()})
            frontier = hop.sources


@pytest.mark.parametrize("replace", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("by_weight", [False, True], ids=["uniform", "weighted"])
def test_the_result_has_the_same_bits_for_any_number_of_threads(replace: bool, by_weight: bool) -> None:
    indptr, indices = random_graph(30_000, 20)
    weight = random_weights(indptr) if by_weight else None
    sampler = NeighborSampler(indptr, indices, [7, 5, 3], weight, replace, by_weight, keep_places=True)
    for epoch, count in enumerate((2_000, 30, 5_000)):
        targets = chosen(30_000, count)
        first = sampler.sample(targets, epoch, num_threads=1)
        assert equal(first, sampler.sample(targets, epoch, num_threads=1))
        for num_threads in (2, 3, 4):
            assert equal(first, sampler.sample(targets, epoch, num_threads))
        assert not equal(first, sampler.sample(targets, epoch + 9))


def test_threads_that_come_late_change_nothing() -> None:
    """More threads than cores: some are suspended while others go on to the next hop."""
    indptr, indices = random_graph(3_000, 10)
    sampler, before = NeighborSampler(indptr, indices, [3, 3, 3, 3]), torch.get_num_threads()
    torch.set_num_threads(8)
    try:
        for epoch in range(150):
            targets = chosen(3_000, 600, seed=epoch)
            assert equal(sampler.sample(targets, epoch, num_threads=8), sampler.sample(targets, epoch, num_threads=1))
    finally:
        torch.set_num_threads(before)


def test_a_node_has_the_same_neighbours_in_every_batch() -> None:
    indptr, indices = random_graph(2_000, 20)
    sampler = NeighborSampler(indptr, indices, [6, 4])

    def rows(targets: np.ndarray) -> list[dict[int, list[int]]]:
        neighbors = []
        for hop in sampler.sample(targets, 5):
            names = hop.sources[hop.target_index]
            neighbors.append(
                {int(v): hop.sources[hop.indices[a:b]].tolist() for v, a, b in zip(names, hop.indptr, hop.indptr[1:])}
            )
        return neighbors

    targets = chosen(2_000, 300)
    whole = rows(targets)
    for part in np.array_split(targets, 4):
        for of_part, of_whole in zip(rows(part), whole):
            assert of_part.items() <= of_whole.items()


@pytest.mark.parametrize("fanouts", [[], *HOPS], ids=str)
@pytest.mark.parametrize("replace", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("by_weight", [False, True], ids=["uniform", "weighted"])
def test_counted_reads_are_those_of_the_batches(fanouts: list[int], replace: bool, by_weight: bool) -> None:
    indptr, indices = random_graph(500, 12)
    weight = random_weights(indptr) if by_weight else None
    sampler = NeighborSampler(indptr, indices, fanouts, weight, replace, by_weight, SEED)
    batches = [*(chosen(500, 3, seed) for seed in range(7)), np.empty(0, np.int64)]
    for epoch in (1, 2):
        read = [batch if not fanouts else sampler.sample(batch, epoch)[-1].sources for batch in batches]
        wanted = np.bincount(np.concatenate(read), minlength=500)
        counts = sampler.counts(batches, epoch)
        assert counts.dtype == np.int32 and np.array_equal(counts, wanted) and wanted.max() > 1


def test_every_edge_exists_none_twice_and_fanouts_are_kept() -> None:
    indptr, indices = random_graph(20_000, 30)
    fanouts = [15, 10, 5]
    degree, frontier = np.diff(indptr), chosen(20_000, 1_024)
    for hop, fanout in zip(NeighborSampler(indptr, indices, fanouts, keep_places=True).sample(frontier, 3), fanouts):
        assert hop.places is not None
        assert len(np.unique(hop.places)) == hop.num_edges
        target = np.repeat(frontier, np.diff(hop.indptr))
        assert (indptr[target] <= hop.places).all() and (hop.places < indptr[target + 1]).all()
        assert np.array_equal(np.diff(hop.indptr), np.minimum(degree[frontier], fanout))
        frontier = hop.sources


def test_all_neighbours_are_the_graph_itself() -> None:
    indptr, indices = random_graph(3_000, 8)
    (hop,) = NeighborSampler(indptr, indices, [ALL]).sample(np.arange(3_000), 1)
    assert np.array_equal(hop.indptr, indptr) and np.array_equal(hop.indices, indices)
    assert np.array_equal(hop.sources, np.arange(3_000)) and np.array_equal(hop.target_index, np.arange(3_000))


def test_an_empty_batch_and_a_graph_without_edges() -> None:
    indptr, indices = random_graph(300, 8)
    hops = NeighborSampler(indptr, indices, [3, 2]).sample(np.empty(0, np.int64), 1)
    assert [(hop.num_targets, hop.num_edges, len(hop.sources), hop.indptr.tolist()) for hop in hops] == [
        (0, 0, 0, [0])
    ] * 2
    nothing = NeighborSampler(np.zeros(6, np.int64), np.empty(0, np.int32), [3, ALL], replace=True)
    for hop in nothing.sample(np.array([1, 4]), 1):
        assert hop.sources.tolist() == [1, 4] and hop.indptr.tolist() == [0, 0, 0]
    assert nothing.counts([np.array([1, 4])], 1).tolist() == [0, 1, 0, 0, 1]


def star(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Node 0 reads from ``degree`` others."""
    return np.array([0] + [degree] * (degree + 1), np.int64), np.arange(1, degree + 1, dtype=np.int32)


def occurrences(sampler: NeighborSampler, num_epochs: int) -> np.ndarray:
    """How often each place of row 0 is drawn."""
    drawn = []
    for epoch in range(num_epochs):
        (hop,) = sampler.sample(np.array([0]), epoch)
        assert hop.places is not None
        drawn.append(hop.places)
    return np.bincount(np.concatenate(drawn), minlength=len(sampler.indices))


@pytest.mark.sample(4)
@pytest.mark.parametrize("degree", [12, 64, 65, 300])
@pytest.mark.parametrize("replace", [False, True], ids=["without", "with"])
def test_each_neighbour_is_equally_likely(degree: int, replace: bool) -> None:
    epochs = 200 * degree
    counts = occurrences(NeighborSampler(*star(degree), [5], replace=replace, keep_places=True), epochs)
    assert counts.sum() == 5 * epochs
    # Without replacement the counts vary less than those of independent draws, so the test is on the safe side.
    assert stats.chisquare(counts).pvalue > 1e-4
    if not replace:
        assert (counts <= epochs).all()


def test_each_set_of_neighbours_is_equally_likely() -> None:
    sampler = NeighborSampler(*star(6), [3], keep_places=True)
    draws = Counter[tuple[int, ...]]()
    for epoch in range(20_000):
        places = sampler.sample(np.array([0]), epoch)[0].places
        assert places is not None
        draws[tuple(sorted(places.tolist()))] += 1
    assert set(draws) == set(combinations(range(6), 3))
    assert stats.chisquare(list(draws.values())).pvalue > 1e-4


def test_draws_of_nodes_hops_and_epochs_are_independent() -> None:
    """Pairs of draws that a shared counter would join: the first neighbours of two nodes, hops, epochs."""
    num_nodes, degree = 3_000, 8
    indptr = np.arange(num_nodes + 1, dtype=np.int64) * degree
    indices = np.tile(np.arange(degree, dtype=np.int32), num_nodes)

    def first(seed: int, epoch: int, hop: int) -> np.ndarray:
        sampler = NeighborSampler(indptr, indices, [1] * (hop + 1), seed=seed, keep_places=True)
        places = sampler.sample(np.arange(num_nodes), epoch)[hop].places
        assert places is not None
        return places % degree

    base = first(1, 1, 0)
    others = [np.roll(base, 1), first(1, 2, 0), first(1, 1, 1), first(2, 1, 0), first(1 + 2**32, 1, 0)]
    for other in others:
        table = np.histogram2d(base, other, bins=degree)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-4


def test_weighted_draws_with_replacement_follow_the_weights() -> None:
    weight = np.array([0.0, 1.0, 2.0, 4.0, 0.0, 0.5, 8.0, 0.0])
    counts = occurrences(NeighborSampler(*star(8), [4], weight, replace=True, weighted=True), 10_000)
    wanted = weight / weight.sum() * counts.sum()
    assert (counts[weight == 0] == 0).all()
    assert stats.chisquare(counts[weight > 0], wanted[weight > 0]).pvalue > 1e-4


def test_weighted_draws_without_replacement_take_the_first_by_weight() -> None:
    """The first of k is drawn by weight, the next by the weights of those that are left, and so on."""
    weight, epochs = np.array([1.0, 0.0, 2.0, 4.0, 3.0]), 20_000
    counts = occurrences(NeighborSampler(*star(5), [2], weight, weighted=True), epochs)
    share = weight / weight.sum()
    wanted = [p + sum(q * p / (1 - q) for j, q in enumerate(share) if j != i) for i, p in enumerate(share)]
    assert np.allclose(counts / epochs, wanted, atol=4 * np.sqrt(0.25 / epochs))


@pytest.mark.sample(3)
@pytest.mark.parametrize("replace", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("fanout", [1, 3, 9])
def test_factors_make_weighted_sums_unbiased(replace: bool, fanout: int) -> None:
    weight = np.array([0.3, 1.0, 2.0, 4.0, 0.1, 0.5, 5.0])
    rows = np.random.default_rng(0).standard_normal(7)
    sampler, sums = NeighborSampler(*star(7), [fanout], weight, replace, weighted=True), []
    for epoch in range(20_000):
        (hop,) = sampler.sample(np.array([0]), epoch)
        assert hop.places is not None and hop.factors is not None
        sums.append((hop.factors * weight[hop.places] * rows[hop.places]).sum())
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - (weight * rows).sum()) <= 4 * error + 1e-12
    if fanout >= 7 and not replace:
        assert np.allclose(sums, (weight * rows).sum())


def test_bad_keys_end_with_one_line() -> None:
    indptr, indices = star(4)
    for fanout in (0, -2, 2**24 + 1):
        with pytest.raises(ConfigError, match=rf"sampler\.fanouts has {fanout}: give"):
            NeighborSampler(indptr, indices, [3, fanout])
    with pytest.raises(ConfigError, match="needs edge weights"):
        NeighborSampler(indptr, indices, [3], weighted=True)
    with pytest.raises(DataError, match="negative"):
        NeighborSampler(indptr, indices, [3], np.array([1.0, -1.0, 1.0, 1.0]), weighted=True)
