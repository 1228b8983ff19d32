"""Links that a task learns to find: pairs of nodes that the adjacency has or that are held out, and who may be joined.

The pairs of a graph are

- of a bipartite graph (``Graph.num_users``): each user above an item, in whichever direction it is stored;
- of a symmetric graph: each undirected edge once, the lower id above the higher one;
- of a directed graph: each node above a node that it reads from.

A self-loop is no pair. The *owner* of a pair is its first node. Pairs are numbered by their owner, then by the partner,
in the original ids: the numbers do not depend on the order of the nodes or on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fullgnn.graph.csr import distinct
from fullgnn.graph.graph import Graph


class Lists(NamedTuple):
    """A sorted list of ids for each of some rows."""

    indptr: np.ndarray  # (num_rows + 1,) int64
    ids: np.ndarray  # (number of all ids,) int64

    def of(self, rows: np.ndarray) -> Lists:
        """The lists of ``rows``, in their order."""
        counts = np.diff(self.indptr)[rows]
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
    num_train: int = 1  # pairs of the adjacency
    num_val: int = 0
    num_test: int = 0

    @property
    def candidates(self) -> range:
        """Ids of the nodes that may be a partner: the items of a bipartite graph, or all nodes."""
        return range(self.num_users or 0, self.num_nodes)


@dataclass(frozen=True, eq=False)
class LinkPairs:
    """The pairs of all nodes of a graph, by owner, in its own ids, on rank 0."""

    facts: LinkFacts
    train: Lists
    val: Lists
    test: Lists
    known: Lists
    """By node, the partners of training pairs that the node may not draw as a negative. They are in either direction of
    a symmetric graph, and unless the graph is bipartite the node itself is one of them."""
    held: Lists
    """The same with the partners of held-out pairs."""
    remarks: Mapping[str, int] = field(default_factory=dict)
    """See ``remarks.py``."""

    @classmethod
    def of(cls, graph: Graph) -> LinkPairs:
        """The pairs of ``graph``."""
        size, bipartite = graph.num_nodes, graph.num_users is not None
        symmetric = not bipartite and stores_both_directions(graph)
        train, val, test = split = _split(graph, symmetric)
        facts = LinkFacts(size, graph.num_users, *(len(one[0]) for one in split))

        def lists(*pairs: np.ndarray) -> Lists:
            rows, ids = np.concatenate(pairs, axis=1)
            return Lists.from_pairs(rows, ids, size, size)

        if bipartite:
            return cls(facts, lists(train), lists(val), lists(test), lists(train), lists(train, val, test))
        loops = np.tile(np.arange(size), (2, 1))
        both = [np.concatenate([one, one[::-1]], axis=1) if symmetric else one for one in split]
        return cls(facts, lists(train), lists(val), lists(test), lists(both[0], loops), lists(*both, loops))


def _split(graph: Graph, symmetric: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The training, validation and test pairs, each (2, number of pairs) int64."""
    train = train_pairs(graph, symmetric)
    held = []
    for pairs in (graph.val_links, graph.test_links):
        pairs = np.empty((2, 0), np.int64) if pairs is None else pairs
        held.append(np.unique(np.sort(pairs, axis=0), axis=1) if symmetric else pairs)
    return train, held[0], held[1]


def train_pairs(graph: Graph, symmetric: bool) -> np.ndarray:
    """(2, number of pairs) int64, the pairs of the adjacency, each once."""
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    cols = graph.indices.astype(np.int64)
    if graph.num_users is not None:
        user, item = np.minimum(rows, cols), np.maximum(rows, cols)
        keys = distinct(user * graph.num_nodes + item)
        return np.stack([keys // graph.num_nodes, keys % graph.num_nodes])
    chosen = cols > rows if symmetric else cols != rows
    return np.stack([rows[chosen], cols[chosen]])


def stores_both_directions(graph: Graph) -> bool:
    """Whether each stored arc is stored in both directions; weights do not count."""
    from fullgnn.graph._structure_cpu import is_symmetric  # imported here, since it imports numba

    return is_symmetric(graph.indptr, graph.indices, None)


def hold_out(graph: Graph, val_fraction: float, test_fraction: float, seed: int) -> Graph:
    """``graph`` without some of its pairs, which become its ``val_links`` and ``test_links``.

    A split that the graph has already is kept. In a symmetric or bipartite graph both directions of a pair leave the
    adjacency. Which pairs are drawn depends on the pairs and on ``seed`` alone.
    """
    val_fraction = val_fraction if graph.val_links is None else 0.0
    test_fraction = test_fraction if graph.test_links is None else 0.0
    if not val_fraction and not test_fraction:
        return graph
    symmetric = graph.num_users is None and stores_both_directions(graph)
    pairs, num_nodes = train_pairs(graph, symmetric), graph.num_nodes
    shuffled = np.random.default_rng(seed).permutation(pairs.shape[1])
    num_val, num_test = (int(fraction * len(shuffled)) for fraction in (val_fraction, test_fraction))
    val, test = (np.sort(one) for one in (shuffled[:num_val], shuffled[num_val : num_val + num_test]))
    away = pairs[:, np.concatenate([val, test])]
    keys = away[0] * num_nodes + away[1]
    if symmetric or graph.num_users is not None:
        keys = np.concatenate([keys, away[1] * num_nodes + away[0]])
    stored = np.repeat(np.arange(num_nodes), np.diff(graph.indptr)) * num_nodes + graph.indices
    kept = ~np.isin(stored, keys)
    counts = np.bincount(stored[kept] // num_nodes, minlength=num_nodes)
    return replace(
        graph,
        indptr=np.concatenate([[0], np.cumsum(counts)]),
        indices=graph.indices[kept],
        weight=None if graph.weight is None else graph.weight[kept],
        val_links=pairs[:, val] if num_val else graph.val_links,
        test_links=pairs[:, test] if num_test else graph.test_links,
    )
