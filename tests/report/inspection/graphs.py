"""Random small graphs, in the dense form that the oracles read too."""

import numpy as np
from scipy.sparse import csr_array

from fullgnn.graph import Graph


def random_graph(seed: int, num_nodes: int = 40, symmetric: bool = False, density: float = 0.06, **fields) -> Graph:
    """With labels of 4 classes, some unknown, and half of the labelled nodes in training."""
    rng = np.random.default_rng(seed)
    adj = rng.random((num_nodes, num_nodes)) < density
    adj[:, num_nodes // 8] = adj[num_nodes // 8, :] = False  # an isolated node
    adj[1, :] = adj[:, 1] = np.arange(num_nodes) == 1  # a node with nothing but a self-loop
    adj = adj | adj.T if symmetric else adj
    labels = rng.integers(-1, 4, num_nodes)
    part = np.where(labels < 0, 3, rng.integers(0, 3, num_nodes))
    masks = dict(train_mask=part == 0, val_mask=part == 1, test_mask=part == 2)
    given = dict(features=rng.integers(0, 2, (num_nodes, 3)).astype(float), labels=labels, num_classes=4, **masks)
    return Graph.from_scipy(csr_array(adj), **(given | fields))
