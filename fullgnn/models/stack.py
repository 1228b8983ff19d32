"""What all layered models have in common: how their layers and dropouts are built, and called one after the other."""

from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.nn import Dropout, Layer, NodeEmbedding
from fullgnn.schemes.block import Block, Input

MakeConv = Callable[[int, int, torch.Generator], torch.nn.Module]


class Stack(torch.nn.Module):
    """Dropout of the input, then ``num_layers`` layers, each of which reads a block of its own. They lead from
    ``in_channels`` via ``hidden_channels`` to ``out_channels``. Every layer but the last one ends with ``activation``
    and the dropout of the next layer's input.

    Args:
        conv: function or class that builds a convolution: (in_channels, out_channels, generator) -> module.
        in_channels: number of features of a node.
        out_channels: number of classes.
        hidden_channels: width of the hidden layers.
        dropout: dropout probability for the input of every layer.
        input_dropout: dropout probability for the input of the first layer; None: the same as ``dropout``.
        seed: seed of the initial weights and of the dropout masks.
        embedding_channels: width of a trainable vector for each node, which stands beside its features, or in their
            place where the graph has none; None: no such vector.
        last: builds the last convolution; None: ``conv`` does.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    restricts_output = True  # the last block may have fewer targets: nothing after its convolution mixes rows

    def __init__(
        self,
        conv: MakeConv,
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        num_layers: int,
        dropout: float,
        input_dropout: float | None,
        seed: int,
        embedding_channels: int | None = None,
        activation: Callable[[], torch.nn.Module] = torch.nn.ReLU,
        last: MakeConv | None = None,
    ):
        super().__init__()
        self.embedding = None
        if embedding_channels is not None:
            if embedding_channels < 1:
                raise ConfigError(f"model.embedding_channels={embedding_channels} is too small: it must be at least 1")
            self.embedding = NodeEmbedding(embedding_channels, seed)
            in_channels += embedding_channels
        if not in_channels:
            raise ConfigError(
                "the graph has no features: give model.embedding_channels=64, the width of a trainable vector for"
                " each node, or a dataset with features"
            )
        for key, value in (("hidden_channels", hidden_channels), ("num_layers", num_layers)):
            if value < 1:
                raise ConfigError(f"model.{key}={value} is too small: it must be at least 1")
        rates = [dropout if input_dropout is None else input_dropout, *[dropout] * (num_layers - 1)]
        for key, rate in (("dropout", dropout), ("input_dropout", rates[0])):
            if not 0 <= rate < 1:
                raise ConfigError(f"model.{key}={rate} is not a dropout rate: it must lie in [0, 1)")
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        generator = torch.Generator().manual_seed(seed)
        makers = [*[conv] * (num_layers - 1), last or conv]
        convs = [make(a, b, generator) for make, a, b in zip(makers, widths, widths[1:])]
        self.dropout, *others = (Dropout(rate, index, seed) for index, rate in enumerate(rates))
        inner = [Layer(one, activation(), following) for one, following in zip(convs, others)]
        self.layers = torch.nn.ModuleList([*inner, Layer(convs[-1])])
        self.num_blocks = num_layers

    def with_embedding(self, x: Input, block: Block) -> Input:
        """The input of the first layer: the features, the trainable vectors of the nodes, or both side by side."""
        if self.embedding is None:
            return x
        assert isinstance(x, Tensor)
        rows = self.embedding(block)
        return torch.cat([x, rows], dim=1) if x.shape[1] else rows

    def forward(self, x: Input, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the last block's targets."""
        h = self.dropout(self.with_embedding(x, blocks[0]), blocks[0].source_id)
        for layer, block in zip(self.layers, blocks):
            h = layer(h, block)
        return h
