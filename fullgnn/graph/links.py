"""Links that a task learns to find: pairs of nodes that the adjacency has or that are held out, and who may be joined.

A pair has no direction, since the score of a pair is an inner product. The pairs of a graph are its distinct edges, the
lower id above the higher one, in whichever direction an edge is stored: in a bipartite graph (``Graph.num_users``), a
user above an item. Weights do not count, and a self-loop is no pair.

The *owner* of a pair is its first node. A *negative* of a pair is a candidate that the owner is not joined with. An
owner that is joined with every candidate has none, so there is nothing to tell its pairs from: they are not trained
with, though both nodes stay joined. Pairs are numbered by their owner, then by the partner, in the original ids: the
numbers do not depend on the order of the nodes or on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import id_beyond, to_integers
from fullgnn.graph.csr import distinct
from fullgnn.graph.remarks import noted

if TYPE_CHECKING:
    from fullgnn.graph.graph import Graph


class Lists(NamedTuple):
    """A sorted list of ids for each of some rows."""

    indptr: np.ndarray  # (num_rows + 1,) int64
    ids: np.ndarray  # (number of all ids,) int64

    @property
    def counts(self) -> np.ndarray:
        """(num_rows,) int64, the length of each list."""
        return np.diff(self.indptr)

    def of(self, rows: np.ndarray) -> Lists:
        """The lists of ``rows``, in their order."""
        counts = self.counts[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        index = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return Lists(indptr, self.ids[index])

    @classmethod
    def from_pairs(cls, rows: np.ndarray, ids: np.ndarray, num_rows: int, num_ids: int) -> Lists:
        """The lists with each of the pairs once."""
        keys = distinct(rows.astype(np.int64) * num_ids + ids)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // num_ids, minlength=num_rows))])
        return cls(indptr, keys % num_ids)


@dataclass(frozen=True)
class LinkFacts:
    """What every rank knows of the links of the whole graph."""

    num_nodes: int
    num_users: int | None = None  # of a bipartite graph, whose nodes from this id on are items
    num_train: int = 1  # pairs of the adjacency that have a negative
    num_val: int = 0
    num_test: int = 0
    num_without_negative: int = 0  # further pairs of the adjacency

    @property
    def candidates(self) -> range:
        """Ids of the nodes that may be a partner: the items of a bipartite graph, or all nodes."""
        return range(self.num_users or 0, self.num_nodes)

    def check_trainable(self) -> None:
        """Refuse a graph without a pair to train on.

        Raises:
            DataError: one line that says why there is none.
        """
        if not self.num_train and self.num_without_negative:
            why = "each of their users is joined with every item: give a graph where one is not"
            if self.num_users is None:
                why = "the first node of each, which has the lower id, is joined with every other node: give a graph"
                why += " where one is not, or number such nodes after all others"
            raise DataError(f"none of the {self.num_without_negative} pairs to train on has a negative, since {why}")
        if not self.num_train:
            raise DataError("there is no edge to train on: give a graph with edges, or hold out fewer of them")


@dataclass(frozen=True, eq=False)
class LinkPairs:
    """The pairs of all nodes of a graph, by owner, in its own ids, on rank 0."""

    facts: LinkFacts
    train: Lists
    """Pairs of the adjacency that have a negative."""
    val: Lists
    test: Lists
    known: Lists
    """By node, the candidates that are no negatives of the node: those that it is joined with in the adjacency and,
    unless the graph is bipartite, the node itself."""
    held: Lists
    """The same with the partners of held-out pairs."""
    remarks: Mapping[str, int] = field(default_factory=dict)
    """See ``remarks.py``."""

    @classmethod
    def of(cls, graph: Graph) -> LinkPairs:
        """The pairs of ``graph``."""
        size, bipartite = graph.num_nodes, graph.num_users is not None
        train, num_one_way = train_pairs(graph)
        val, test = (
            np.empty((2, 0), np.int64) if pairs is None else np.sort(pairs, axis=0)
            for pairs in (graph.val_links, graph.test_links)
        )

        def lists(*pairs: np.ndarray) -> Lists:
            rows, ids = np.concatenate(pairs, axis=1)
            return Lists.from_pairs(rows, ids, size, size)

        def joined(*pairs: np.ndarray) -> Lists:
            loops = np.tile(np.arange(size), (2, 1))
            return lists(*pairs) if bipartite else lists(*pairs, *(links[::-1] for links in pairs), loops)

        known, held = joined(train), joined(train, val, test)
        num_candidates = size - (graph.num_users or 0)
        full = known.counts == num_candidates
        drawn = train[:, ~full[train[0]]] if full.any() else train
        without = train.shape[1] - drawn.shape[1]
        facts = LinkFacts(size, graph.num_users, drawn.shape[1], val.shape[1], test.shape[1], without)
        remarks = {
            "one_way_arcs": graph.remarks.get("one_way_arcs", num_one_way),  # of before pairs were held out
            "pairs_without_negative": without,
            "training_pairs": train.shape[1] if without else 0,
            "held_out_pairs_without_negative": sum(
                np.count_nonzero(held.counts[pairs[0]] == num_candidates) for pairs in (val, test)
            ),
        }
        return cls(facts, lists(drawn), lists(val), lists(test), known, held, noted(remarks))


def train_pairs(graph: Graph) -> tuple[np.ndarray, int]:
    """The pairs of the adjacency, each once, in ascending order.

    Returns:
        (2, number of pairs) int64, and how many arcs are stored in one direction only.
    """
    from fullgnn.graph._csr_cpu import is_symmetric  # imported here, since it imports numba

    rows, cols = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)), graph.indices.astype(np.int64)
    upper = cols > rows
    if is_symmetric(graph.indptr, graph.indices, None):
        return np.stack([rows[upper], cols[upper]]), 0
    lower = cols < rows
    keys = distinct(
        np.concatenate([rows[upper] * graph.num_nodes + cols[upper], cols[lower] * graph.num_nodes + rows[lower]])
    )
    num_arcs = int(np.count_nonzero(upper) + np.count_nonzero(lower))
    return np.stack(np.divmod(keys, graph.num_nodes)), 2 * len(keys) - num_arcs


def hold_out(graph: Graph, val_fraction: float, test_fraction: float, seed: int) -> Graph:
    """``graph`` without some of its pairs, which become its ``val_links`` and ``test_links``.

    A split that the graph has already is kept. Both directions of a pair leave the adjacency. Which pairs are drawn
    depends on the pairs and on ``seed`` alone.
    """
    val_fraction = val_fraction if graph.val_links is None else 0.0
    test_fraction = test_fraction if graph.test_links is None else 0.0
    if not val_fraction and not test_fraction:
        return graph
    (pairs, num_one_way), num_nodes = train_pairs(graph), graph.num_nodes
    shuffled = np.random.default_rng(seed).permutation(pairs.shape[1])
    num_val, num_test = (int(fraction * len(shuffled)) for fraction in (val_fraction, test_fraction))
    val, test = (np.sort(numbers) for numbers in (shuffled[:num_val], shuffled[num_val : num_val + num_test]))
    first, second = pairs[:, np.concatenate([val, test])]
    away = np.concatenate([first * num_nodes + second, second * num_nodes + first])
    stored = np.repeat(np.arange(num_nodes), np.diff(graph.indptr)) * num_nodes + graph.indices
    kept = ~np.isin(stored, away)
    counts = np.bincount(stored[kept] // num_nodes, minlength=num_nodes)
    return replace(
        graph,
        indptr=np.concatenate([[0], np.cumsum(counts)]),
        indices=graph.indices[kept],
        weight=None if graph.weight is None else graph.weight[kept],
        val_links=pairs[:, val] if num_val else graph.val_links,
        test_links=pairs[:, test] if num_test else graph.test_links,
        remarks=noted({"one_way_arcs": num_one_way}, graph.remarks),
    )


HeldOut = tuple[np.ndarray | None, np.ndarray | None]
"""The pairs of a graph to validate with and to test with."""


def check_links(num_users: Any, links: HeldOut, indptr: np.ndarray, indices: np.ndarray) -> tuple[int | None, HeldOut]:
    """The fields of a ``Graph`` that tasks which find links read, as it keeps them.

    Raises:
        DataError: one line that says what is wrong.
    """
    num_users, num_nodes = _check_num_users(num_users, indptr, indices), len(indptr) - 1
    val, test = (
        _check_pairs(pairs, name, indptr, indices, num_users) for name, pairs in zip(("val_links", "test_links"), links)
    )
    both = 0 if val is None or test is None else np.isin(_keys(val, num_nodes), _keys(test, num_nodes)).sum()
    if both:
        raise DataError(f"val_links and test_links have {both} pairs in common: a pair belongs to one of them")
    return num_users, (val, test)


def _check_num_users(value: Any, indptr: np.ndarray, indices: np.ndarray) -> int | None:
    """The number of users of a bipartite graph, whose edges join users with items only; None: it is not bipartite."""
    if value is None:
        return None
    num_users, num_nodes = int(value), len(indptr) - 1
    if not 0 < num_users < num_nodes:
        raise DataError(
            f"num_users is {num_users} and the graph has {num_nodes} nodes: a bipartite graph needs at least one user"
            " and one item"
        )
    of_users = indices[: indptr[num_users]]
    of_items = indices[indptr[num_users] :]
    if (of_users < num_users).any() or (of_items >= num_users).any():
        raise DataError(
            f"num_users is {num_users}, and an edge joins two users or two items: number the users from 0 to"
            f" {num_users - 1} and the items after them"
        )
    return num_users


def _check_pairs(
    value: Any, name: str, indptr: np.ndarray, indices: np.ndarray, num_users: int | None
) -> np.ndarray | None:
    """Held-out pairs: (2, E) int64, sorted, each once, none of which the adjacency has in either direction; None: there
    are none."""
    if value is None:
        return None
    links, num_nodes = to_integers(value, name).astype(np.int64, copy=False), len(indptr) - 1
    if links.ndim != 2 or links.shape[0] != 2:
        raise DataError(f"{name} has shape {links.shape}: pass (2, E), one pair of nodes a column")
    if not links.size:
        return None
    if (bad := id_beyond(links, num_nodes)) is not None:
        raise DataError(f"node id {bad} in {name} is out of range: the graph has nodes 0 to {num_nodes - 1}")
    if (links[0] == links[1]).any():
        raise DataError(f"{name} joins node {links[0][links[0] == links[1]][0]} with itself: leave such pairs out")
    if num_users is not None and ((links[0] >= num_users) | (links[1] < num_users)).any():
        raise DataError(f"{name} must have users above items in a graph with num_users={num_users}")
    num_pairs = len(distinct(_keys(links, num_nodes)))
    if num_pairs < links.shape[1]:
        raise DataError(
            f"{name} has {links.shape[1] - num_pairs} pairs more than once: give each pair once, in one direction"
        )
    ordered = links[:, np.lexsort(links[::-1])]
    stored = np.repeat(np.arange(num_nodes), np.diff(indptr)) * num_nodes + indices  # ascending
    for direction, (first, second) in (("", ordered), (" in the other direction", ordered[::-1])):
        known = _has(stored, first * num_nodes + second)
        if known.any():
            pair = ", ".join(str(node) for node in ordered[:, known][:, 0])
            raise DataError(
                f"{name} has the pair ({pair}), which the adjacency has too{direction}: hold both directions out of the"
                " adjacency"
            )
    return ordered


def _keys(links: np.ndarray, num_nodes: int) -> np.ndarray:
    """A number for each of the pairs (2, E) that is the same in both directions."""
    return links.min(axis=0) * num_nodes + links.max(axis=0)


def _has(ascending: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Whether each of ``keys`` is among the ``ascending`` ones."""
    places = np.searchsorted(ascending, keys)
    places[places == len(ascending)] = 0
    return ascending[places] == keys if len(ascending) else np.zeros(len(keys), bool)
