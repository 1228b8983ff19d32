"""Checks of the fields of a ``Graph`` that tasks which find links read: see ``links.py``.

A pair of nodes has no direction: (u, v) and (v, u) are the same one.
"""

from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import to_integers
from fullgnn.graph.csr import distinct


def check_num_users(value: Any, indptr: np.ndarray, indices: np.ndarray) -> int | None:
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


def check_links(
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
    if links.min() < 0 or links.max() >= num_nodes:
        bad = links.min() if links.min() < 0 else links.max()
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


def check_disjoint(val_links: np.ndarray | None, test_links: np.ndarray | None, num_nodes: int) -> None:
    """Refuse checked links of which a pair is in both."""
    if val_links is None or test_links is None:
        return
    both = np.isin(_keys(val_links, num_nodes), _keys(test_links, num_nodes))
    if both.any():
        raise DataError(f"val_links and test_links have {both.sum()} pairs in common: a pair belongs to one of them")


def _keys(links: np.ndarray, num_nodes: int) -> np.ndarray:
    """A number for each of the pairs (2, E) that is the same in both directions."""
    return links.min(axis=0) * num_nodes + links.max(axis=0)


def _has(ascending: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Whether each of ``keys`` is among the ``ascending`` ones."""
    places = np.searchsorted(ascending, keys)
    places[places == len(ascending)] = 0
    return ascending[places] == keys if len(ascending) else np.zeros(len(keys), bool)
