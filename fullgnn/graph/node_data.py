"""Features and labels for graphs that come without them, and features divided by their sums. A user chooses them: they
never take a place by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.sparse_features import NodeFeatures
from fullgnn.graph.splits import random_split

ROWS_PER_BLOCK = 1 << 14
MADE = ("identity", "degree", "random")
"""The choices of ``dataset.features`` that name no columns."""
RANDOM_CHANNELS = 64


def node_data(
    groups: np.ndarray,
    num_features: int,
    num_classes: int,
    feature_signal: float,
    label_noise: float,
    train_fraction: float,
    val_fraction: float,
    seed: int,
) -> dict[str, Any]:
    """Features, labels and masks for nodes in known groups, as keyword arguments of ``Graph``.

    The class of a node is its group modulo ``num_classes``. Features are standard normal noise plus the
    centre of the class, a random vector of length ``feature_signal``: at 1 the centres of two classes lie
    sqrt(2) noise standard deviations apart, so a node alone says little, while the mean over d neighbours of
    its class has sqrt(d) times less noise. ``label_noise`` of the labels are then redrawn at random. A fixed
    random split gives ``train_fraction`` of the nodes to training, ``val_fraction`` to validation and the
    rest to testing.

    Args:
        groups: (num_nodes,) group ids.
    """
    if num_features < 1 or num_classes < 1:
        raise ConfigError(f"num_features={num_features} and num_classes={num_classes} must both be at least 1")
    if not 0 <= label_noise <= 1:
        raise ConfigError(f"label_noise={label_noise} is not a fraction: choose a value from 0 to 1")
    rng = np.random.default_rng([seed, 1])  # separate from the structure's stream: either can change on its own
    num_nodes = len(groups)
    labels = groups.astype(np.int64) % num_classes
    centre = rng.standard_normal((num_classes, num_features), dtype=np.float32)
    centre *= feature_signal / np.linalg.norm(centre, axis=1, keepdims=True)
    features = rng.standard_normal((num_nodes, num_features), dtype=np.float32)
    for start in range(0, num_nodes, ROWS_PER_BLOCK):  # in blocks: centre[labels] is as large as the features
        block = slice(start, start + ROWS_PER_BLOCK)
        features[block] += centre[labels[block]]
    noisy = rng.random(num_nodes) < label_noise
    labels[noisy] = rng.integers(num_classes, size=int(noisy.sum()))
    split = random_split(labels, train_fraction, val_fraction, seed)
    return dict(features=features, labels=labels, num_classes=num_classes, **split)


def normalize_rows(features: NodeFeatures) -> NodeFeatures:
    """Divide each row by its sum, as Kipf and Welling (2017) do with bags of words; a zero row stays zero."""
    # scipy adds the entries of a sparse matrix in their own dtype.
    wide = features if isinstance(features, np.ndarray) else features.astype(np.float64)
    total = np.asarray(wide.sum(axis=1, dtype=np.float64)).reshape(-1)
    if (total < 0).any():
        raise DataError("normalize_features=true needs rows with sums >= 0: set dataset.normalize_features=false")
    divisor = np.where(total == 0, 1, total).astype(features.dtype)
    if isinstance(features, np.ndarray):
        return features / divisor[:, None]
    of_entry = np.repeat(divisor, np.diff(features.indptr))
    return csr_array((features.data / of_entry, features.indices, features.indptr), shape=features.shape)


def made_features(
    choice: str, indptr: np.ndarray, indices: np.ndarray, seed: int = 0, channels: int | None = None
) -> np.ndarray | None:
    """The features of all nodes, by one of the choices ``MADE``.

    - ``identity``: None. A column a node, as wide as the graph, which a layer multiplies by a matrix with a row for
      each node: these rows are the trainable vectors that ``model.embedding_channels`` gives, without the columns;
    - ``degree``: log(1 + d) of the number of nodes that a node reads from, and of those that read from it, and one
      column for each power of two, which says whether the first number has so many bits;
    - ``random``: independent standard normal numbers.

    Args:
        indptr, indices: of a ``Graph``.
        seed, channels: of ``random``; None: 64 columns.

    Returns:
        (num_nodes, num_features) float32.

    Raises:
        ConfigError: see ``check_made``.
    """
    check_made(choice, channels)
    num_nodes = len(indptr) - 1
    if choice == "identity":
        return None
    if choice == "random":
        rng = np.random.default_rng([seed, 3])
        return rng.standard_normal((num_nodes, channels or RANDOM_CHANNELS), dtype=np.float32)
    in_degree = np.diff(indptr)
    bits = np.frexp(in_degree.astype(np.float64))[1]  # 0 of 0, otherwise the number of binary digits
    features = np.zeros((num_nodes, 2 + int(bits.max(initial=0)) + 1), np.float32)
    features[:, 0] = np.log1p(in_degree)
    features[:, 1] = np.log1p(np.bincount(indices, minlength=num_nodes))
    features[np.arange(num_nodes), 2 + bits] = 1
    return features


def check_made(choice: str, channels: int | None) -> None:
    """Refuse another choice, or a number of columns that it has no use for.

    Raises:
        ConfigError: one line with what is possible.
    """
    if choice not in MADE:
        raise ConfigError(f"dataset.features={choice} is none of {', '.join(MADE)}")
    if choice != "random" and channels is not None:
        raise ConfigError(f"dataset.feature_channels has no meaning with dataset.features={choice}: leave it out")
    if channels is not None and channels < 1:
        raise ConfigError(f"dataset.feature_channels={channels}: choose 1 or more, or null for {RANDOM_CHANNELS}")
