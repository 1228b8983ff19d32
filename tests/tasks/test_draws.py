"""The draws of an epoch, whatever the rows of a rank and the number of threads."""

import itertools

import numpy as np
import pytest
import torch

from fullgnn.graph.links import LinkPairs
from fullgnn.tasks._draws_cpu import slots
from fullgnn.tasks.draws import EpochDraws, batch_sizes, draw, num_batches, stream_key
from tests.tasks import links as oracle
from tests.tasks.draws import bipartite
from tests.tasks.link_training import graph_of, links_of

SEED = 2**40 + 3


def drawn(pairs: LinkPairs, node_id: np.ndarray, epoch: int, batch_size: int | None) -> EpochDraws:
    own, known = pairs.train.of(node_id), pairs.known.of(node_id)
    key = stream_key(SEED, oracle.TRAINING)
    return draw(own, pairs.train.indptr[node_id], known, pairs.facts, key, epoch, 2, batch_size)


def listed(draws: EpochDraws, node_id: np.ndarray) -> list[set[tuple[int, ...]]]:
    """The draws of each batch, each by its number, owner, partner and negatives."""
    rows = np.column_stack([draws.number, node_id[draws.row], draws.partner, draws.negatives])
    return [set(map(tuple, part.tolist())) for part in np.split(rows, draws.starts[1:-1])]


@pytest.mark.parametrize("batch_size", [None, 1000])
def test_every_pair_once_in_batches_of_exact_size_and_never_a_known_partner(batch_size: int | None) -> None:
    graph = bipartite(120, 300, 0.2)
    pairs, every = LinkPairs.of(graph), np.arange(420)
    num_pairs = pairs.facts.num_train
    before = []
    for epoch in (1, 2):
        draws = drawn(pairs, every, epoch, batch_size)
        assert sorted(draws.number) == list(range(num_pairs))
        assert np.diff(draws.starts).tolist() == batch_sizes(num_pairs, batch_size)
        assert len(draws.starts) == 1 + num_batches(num_pairs, batch_size)
        joined = set(zip(draws.row.tolist(), draws.partner.tolist()))
        assert len(joined) == num_pairs
        for negatives in draws.negatives.T:
            assert negatives.min() >= 120 and negatives.max() < 420
            assert joined.isdisjoint(zip(draws.row.tolist(), negatives.tolist()))
        before.append(listed(draws, every))
    assert before[0] != before[1]
    counts = np.bincount(draws.negatives.ravel() - 120, minlength=300)
    assert counts.min() > 0.5 * counts.mean() and counts.max() < 1.6 * counts.mean()
    if batch_size is not None:  # a batch is spread over all pairs
        assert abs(np.mean([number for number, *_ in before[0][0]]) - num_pairs / 2) < 0.05 * num_pairs


def test_the_same_draws_for_any_rows_order_and_number_of_threads() -> None:
    graph, num_threads = bipartite(120, 300, 0.2), torch.get_num_threads()
    pairs, every = LinkPairs.of(graph), np.arange(420)
    whole = listed(drawn(pairs, every, 3, 1000), every)
    try:
        for threads, parts in ((1, [every[::-1]]), (3, [every]), (2, np.array_split(np.random.permutation(420), 3))):
            torch.set_num_threads(threads)
            draws = [listed(drawn(pairs, part, 3, 1000), part) for part in parts]
            assert [set.union(*of_batch) for of_batch in zip(*draws)] == whole
    finally:
        torch.set_num_threads(num_threads)


@pytest.mark.parametrize("kind", ["bipartite", "symmetric", "directed"])
def test_the_draws_are_those_of_plain_loops(kind: str) -> None:
    links, pairs, every = links_of(kind), LinkPairs.of(graph_of(kind)), np.arange(29)
    for batch_size in (None, 1, 7, len(links.drawn), 1000):
        draws = listed(drawn(pairs, every, 4, batch_size), every)
        expected = oracle.batches(links, SEED, 4, batch_size, 2)
        assert [sorted(row[1:] for row in part) for part in draws] == [sorted(map(tuple, part)) for part in expected]


@pytest.mark.parametrize("most", [3, 40, 1 << 60])
def test_distinct_ids_of_each_batch(most: int) -> None:
    rng = np.random.default_rng(most)
    sizes = np.array([0, 50, 1, 0, 64, 7])
    starts, ids = np.concatenate([[0], sizes.cumsum()]), rng.integers(0, most, sizes.sum())
    slot, distinct, num_distinct = slots(starts, ids)
    expected = [list(dict.fromkeys(ids[begin:end])) for begin, end in itertools.pairwise(starts)]
    assert num_distinct.tolist() == [len(distinct_ids) for distinct_ids in expected]
    assert distinct.tolist() == [node for distinct_ids in expected for node in distinct_ids]
    for distinct_ids, begin, end in zip(expected, starts, starts[1:]):
        assert slot[begin:end].tolist() == [distinct_ids.index(node) for node in ids[begin:end]]
    assert [len(part) for part in slots(np.array([0]), ids[:0])] == [0, 0, 0]
