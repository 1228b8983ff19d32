"""Handwritten digits (UCI, in scikit-learn) on their nearest-neighbour graph: real data without a download.

The nodes are 1797 images of 8 x 8 pixels; each reads from the images most like it. With few labels, the
neighbours carry information that the pixels of one image do not.
"""

from pathlib import Path

import numpy as np

from fullgnn.errors import ConfigError
from fullgnn.graph.graph import Graph
from fullgnn.graph.splits import few_label_split


def files() -> list[Path]:
    """None: scikit-learn has the data."""
    return []


def load(num_neighbors: int, train_per_class: int, num_val: int, seed: int) -> Graph:
    """The digits: features are pixels scaled to [0, 1]; each image has arcs from its ``num_neighbors`` nearest."""
    from sklearn.datasets import load_digits  # imported here: it takes a second, and only one rank loads data

    pixels, labels = load_digits(return_X_y=True)
    num_nodes = len(pixels)
    if not 1 <= num_neighbors < num_nodes:
        raise ConfigError(f"num_neighbors={num_neighbors}: choose 1 to {num_nodes - 1}")
    # Pixels are integers up to 16, so distances are exact and every machine finds the same neighbours.
    square = (pixels**2).sum(axis=1)
    distance = square[:, None] + square[None, :] - 2 * pixels @ pixels.T
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :num_neighbors]
    return Graph.from_edge_index(
        np.stack([nearest.ravel(), np.repeat(np.arange(num_nodes), num_neighbors)]),
        features=(pixels / 16).astype(np.float32),
        labels=labels,
        name="digits",
        **few_label_split(labels, train_per_class, num_val, seed),
    )
