"""Helpers that test_draws.py shares with other test modules."""

import numpy as np

from fullgnn.graph import Graph


def bipartite(num_users: int, num_items: int, share: float) -> Graph:
    rng = np.random.default_rng(1)
    user, item = np.nonzero(rng.random((num_users, num_items)) < share)
    edges = np.stack([np.concatenate([user, item + num_users]), np.concatenate([item + num_users, user])])
    return Graph.from_edge_index(edges, num_nodes=num_users + num_items, num_users=num_users)
