"""The base of all models: their input, and checks of their keys."""

import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.nn import NodeEmbedding
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import Input

NORM_OF_ALL_ROWS = "model.norm=batch reads every row of the last layer; set model.norm=layer or null"
"""A reason in ``Contract.disables``."""


class Model(torch.nn.Module):
    """A model whose input is the features of the nodes, a trainable vector for each node, or both side by side.

    Args:
        in_channels: number of features of a node.
        embedding_channels: width of the trainable vectors; None: there are none.
        seed: seed of the vectors' first values.

    Raises:
        ConfigError: there are neither features nor trainable vectors, or the width is out of range.
    """

    def __init__(self, in_channels: int, embedding_channels: int | None, seed: int):
        super().__init__()
        self.embedding = None
        if embedding_channels is not None:
            check_sizes(embedding_channels=embedding_channels)
            self.embedding = NodeEmbedding(embedding_channels, seed)
        self.in_channels = in_channels + (embedding_channels or 0)
        if not self.in_channels:
            raise ConfigError(
                "the graph has no features: give model.embedding_channels=64, the width of a trainable vector for"
                " each node, or a dataset with features"
            )

    def why_input_varies(self, dropout: float = 0.0) -> str:
        """Why the first layer reads more than products of A with constant features, and what to set; empty: it does
        not.

        Args:
            dropout: the rate of the features.
        """
        if self.embedding is not None:
            return "the model trains a vector for each node; leave out model.embedding_channels"
        if dropout:
            return "dropout changes the features in every epoch; set model.input_dropout=0"
        return ""

    def with_embedding(self, x: Input, block: Block) -> Input:
        """The (num_sources, ``self.in_channels``) input of the first layer, from the (num_sources, in_channels)
        features."""
        if self.embedding is None:
            return x
        assert isinstance(x, Tensor)
        rows = self.embedding(block)
        return torch.cat([x, rows], dim=1) if x.shape[1] else rows


MAX_WIDTH, MAX_DEPTH = 1 << 20, 10_000
"""Columns of a layer, and layers or whatever else a model counts, that no model has."""


def check_sizes(**keys: int) -> None:
    """Refuse a width or a depth below 1, or beyond reason.

    Raises:
        ConfigError: one line that names the key of the model.
    """
    for key, value in keys.items():
        if value < 1:
            raise ConfigError(f"model.{key}={value} is too small: it must be at least 1")
        most = MAX_WIDTH if key.endswith("_channels") else MAX_DEPTH
        if value > most:
            raise ConfigError(f"model.{key}={value} is too large: it must be at most {most}")


def check_rates(**keys: float | None) -> None:
    """Refuse a dropout rate that is not in [0, 1); None is no rate.

    Raises:
        ConfigError: one line that names the key of the model.
    """
    for key, rate in keys.items():
        if rate is not None and not 0 <= rate < 1:
            raise ConfigError(f"model.{key}={rate} is not a dropout rate: it must lie in [0, 1)")
