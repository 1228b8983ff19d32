"""Features for a graph that comes without them. A user chooses them: they never take a place by themselves."""

import numpy as np

from fullgnn.errors import ConfigError

MADE = ("identity", "degree", "random")
"""The choices of ``dataset.features`` that name no columns."""
RANDOM_CHANNELS = 64


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
