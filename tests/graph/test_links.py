"""The pairs of a graph: each once, whatever direction is stored; held out in both directions; checked in both."""

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse import csr_array

from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.links import LinkFacts, LinkPairs, Lists, hold_out
from fullgnn.tasks.draws import draw, stream_key

Pairs = list[tuple[int, int]]


def ring(num_nodes: int, *one_way: tuple[int, int]) -> Graph:
    """Both directions of a ring, and arcs in one direction."""
    arcs = [(i, (i + 1) % num_nodes) for i in range(num_nodes)]
    return Graph.from_edge_index(np.array([*arcs, *(arc[::-1] for arc in arcs), *one_way]).T, num_nodes=num_nodes)


def random_graph(kind: str, share: float = 0.3) -> Graph:
    """40 nodes with self-loops, unless there are users and items."""
    rng = np.random.default_rng(len(kind))
    adj = rng.integers(1, 9, (40, 40)) * (rng.random((40, 40)) < share)
    if kind == "symmetric pattern":  # whose weights differ
        adj = adj * (adj.T != 0)
    if kind == "one way":
        adj = np.triu(adj, 1)
        adj = np.where(rng.random((40, 40)) < 0.5, adj, 0) + np.where(rng.random((40, 40)) < 0.5, adj, 0).T
    if "users" in kind:
        adj[:15, :15] = adj[15:, 15:] = 0
        if kind == "users read nothing":
            adj[:15] = 0
        return Graph.from_scipy(csr_array(adj), num_users=15)
    return Graph.from_scipy(csr_array(adj))


KINDS = ["any", "symmetric pattern", "one way", "users and items", "users read nothing"]


def pairs_in(graph: Graph) -> set[tuple[int, int]]:
    adj = graph.adjacency().toarray()
    return {(i, j) for i in range(len(adj)) for j in range(i + 1, len(adj)) if adj[i, j] or adj[j, i]}


def listed(lists: Lists) -> Pairs:
    return [(row, int(column)) for row in range(len(lists.indptr) - 1) for column in lists.of(np.array([row])).ids]


def columns(links: np.ndarray | None) -> Pairs:
    return [] if links is None else [(int(u), int(v)) for u, v in links.T]


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_those_of_plain_loops(kind: str) -> None:
    whole = random_graph(kind)
    graph = hold_out(whole, 0.1, 0.2, seed=4)
    every, train, adj = sorted(pairs_in(whole)), pairs_in(graph), whole.adjacency().toarray()
    val, test = columns(graph.val_links), columns(graph.test_links)
    assert len(val) == int(0.1 * len(every)) and len(test) == int(0.2 * len(every))
    assert sorted([*train, *val, *test]) == every
    away = {*val, *test}
    expected = [[0 if {(i, j), (j, i)} & away else adj[i, j] for j in range(40)] for i in range(40)]
    np.testing.assert_array_equal(graph.adjacency().toarray(), expected)  # with its weights and self-loops

    pairs, first = LinkPairs.of(graph), graph.num_users or 0
    assert listed(pairs.train) == sorted(train) and listed(pairs.val) == val and listed(pairs.test) == test
    assert pairs.facts == LinkFacts(40, graph.num_users, len(train), len(val), len(test))
    for lists, joined in ((pairs.known, train), (pairs.held, {*every})):
        both = {(u, v) for u, v in [*joined, *((v, u) for u, v in joined)] if v >= first and (u < first or not first)}
        assert set(listed(lists)) == both | (set() if first else {(i, i) for i in range(40)})
    num_one_way = sum(1 for i in range(40) for j in range(40) if i != j and adj[i, j] and not adj[j, i])
    assert pairs.remarks == ({"one_way_arcs": num_one_way} if num_one_way else {})


def test_one_arc_does_not_let_held_out_pairs_keep_their_reverse() -> None:
    for arc in ((0, 5), (5, 0)):
        for seed in range(5):
            graph = hold_out(ring(20, arc), 0.1, 0.2, seed)
            held = [*columns(graph.val_links), *columns(graph.test_links)]
            assert len(held) == 6 and not {*held} & pairs_in(graph)
            pairs = LinkPairs.of(graph)
            assert pairs.remarks == {"one_way_arcs": 1}  # whether it is held out or not
            assert pairs.facts.num_train == 15


def test_directions_change_nothing() -> None:
    """The same draws, whichever direction of an edge is stored."""
    symmetric = ring(30, *((i, 7) for i in range(9, 20)), *((7, i) for i in range(9, 20)))
    rng = np.random.default_rng(2)
    adj = np.triu(symmetric.adjacency().toarray())
    turned = np.where(rng.random(adj.shape) < 0.5, adj, 0)
    other = Graph.from_scipy(csr_array(turned + (adj - turned).T))
    assert other.num_edges == symmetric.num_edges // 2
    for graph in (first := hold_out(symmetric, 0.1, 0.1, 6), hold_out(other, 0.1, 0.1, 6)):
        pairs, expected = LinkPairs.of(graph), LinkPairs.of(first)
        assert pairs.facts == expected.facts
        for name in ("train", "val", "test", "known", "held"):
            for array, exact in zip(getattr(pairs, name), getattr(expected, name)):
                np.testing.assert_array_equal(array, exact)
    given = Graph.from_scipy(csr_array(np.eye(9, k=1)), val_links=[[4, 8], [0, 1]], test_links=[[1], [7]])
    pairs = LinkPairs.of(given)
    assert columns(given.val_links) == [(4, 0), (8, 1)]  # as they are given
    assert listed(pairs.val) == [(0, 4), (1, 8)] and listed(pairs.test) == [(1, 7)]
    assert {(0, 4), (4, 0), (1, 8), (8, 1), (1, 7), (7, 1)} <= {*listed(pairs.held)}


DIGESTS = {
    "symmetric": ("a47fd6647726ec11", "661094ea27feb432"),
    "weights differ": ("a47fd6647726ec11", "661094ea27feb432"),
    "users and items": ("f397bb59d452a4c3", "d42548f5e4912fdb"),
    "users read nothing": ("ebd4982ee2feecae", "d42548f5e4912fdb"),
}
"""Digests of the graph with its pairs, and of draws, by a version whose pairs of directed graphs had a direction."""


def graph_of_digest(kind: str) -> Graph:
    rng = np.random.default_rng(5)
    u, v = rng.integers(0, 60, (2, 400))
    both = np.concatenate([[u, v], [v, u]], axis=1)
    weight = rng.integers(1, 9, 800)
    if kind == "weights differ":
        return Graph.from_edge_index(both, num_nodes=60, edge_weight=weight)
    if kind == "symmetric":
        return Graph.from_edge_index(both, num_nodes=60)
    u, v = rng.integers(0, 25, 300), rng.integers(25, 60, 300)
    both = np.concatenate([[u, v], [v, u]], axis=1)
    return Graph.from_edge_index(both[:, : 300 if "nothing" in kind else 600], num_nodes=60, num_users=25)


def digest(*arrays: np.ndarray | None) -> str:
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(np.ascontiguousarray(array, dtype=np.int64).data)
    return hashed.hexdigest()[:16]


@pytest.mark.parametrize("kind", DIGESTS)
def test_graphs_whose_pairs_never_had_a_direction_keep_their_draws(kind: str) -> None:
    graph = hold_out(graph_of_digest(kind), 0.1, 0.2, 3)
    pairs = LinkPairs.of(graph)
    lists = [array for part in (pairs.train, pairs.val, pairs.test, pairs.known, pairs.held) for array in part]
    key, num_val = stream_key(7, 1), pairs.facts.num_val
    train = draw(pairs.train, pairs.train.indptr[:-1], pairs.known, pairs.facts, key, 2, 3, 50)
    val = draw(pairs.val, pairs.val.indptr[:-1], pairs.held, pairs.facts, key, 1, 9, 50, num_val)
    drawn = [getattr(draws, name) for draws in (train, val) for name in "starts row partner negatives number".split()]
    assert digest(graph.indptr, graph.indices, graph.val_links, graph.test_links, *lists) == DIGESTS[kind][0]
    assert digest(*drawn) == DIGESTS[kind][1]


def given(**links: list[list[int]]) -> Callable[[], Graph]:
    """A directed path 0 -> 1 -> ... -> 8 with these links."""
    return lambda: Graph.from_edge_index([[*range(8)], [*range(1, 9)]], num_nodes=9, **links)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (given(val_links=[[1], [0]]), r"^val_links has the pair \(1, 0\), which the adjacency has too: hold both dir"),
        (
            given(test_links=[[5, 0], [0, 1]]),
            r"^test_links has the pair \(0, 1\), which the adjacency has too in the other direction: hold both",
        ),
        (given(val_links=[[2, 7], [7, 2]]), "^val_links has 1 pairs more than once: give each pair once, in one dir"),
        (given(val_links=[[2, 8], [7, 0]], test_links=[[7], [2]]), "^val_links and test_links have 1 pairs in common"),
    ],
)
def test_links_that_are_given_are_checked_in_both_directions(make: Callable[[], Graph], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_pairs_without_a_negative_are_counted_and_left_out() -> None:
    adj = 1 - np.eye(20)
    adj[[3, 7, 5, 11], [7, 3, 11, 5]] = 0
    graph = Graph.from_scipy(csr_array(adj))
    free = {3: 7, 7: 3, 5: 11, 11: 5}
    drawn = [(i, j) for i, j in sorted(pairs_in(graph)) if i in free]
    pairs = LinkPairs.of(graph)
    assert listed(pairs.train) == drawn and pairs.facts == LinkFacts(20, None, len(drawn), 0, 0, 188 - len(drawn))
    assert pairs.remarks == {"pairs_without_negative": 188 - len(drawn), "training_pairs": 188}
    every = np.arange(20)
    for num_negatives in (1, 30):  # more than there are candidates
        draws = draw(
            pairs.train.of(every), pairs.train.indptr[every], pairs.known, pairs.facts, (1, 2), 1, num_negatives, 10
        )
        assert np.diff(draws.starts).tolist() == [10] * (len(drawn) // 10) + [len(drawn) % 10]
        assert sorted(draws.number) == list(range(len(drawn)))
        assert (draws.negatives == np.array([free[row] for row in draws.row])[:, None]).all()
    held = LinkPairs.of(Graph.from_scipy(csr_array(adj), val_links=[[7], [3]], test_links=[[5], [11]]))
    assert held.remarks["held_out_pairs_without_negative"] == 2 and held.facts.num_val == held.facts.num_test == 1
