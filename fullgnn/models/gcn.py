"""Graph convolutional network (Kipf and Welling, 2017)."""

from functools import partial

import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.models.stack import stack
from fullgnn.nn import GCNConv
from fullgnn.schemes.block import Block, Input


class GCN(torch.nn.Module):
    """``num_layers`` graph convolutions with dropout on the input of each one and ReLU between them.

    Args:
        in_channels: number of features of a node.
        out_channels: number of classes.
        hidden_channels: width of the hidden layers.
        dropout: dropout probability for the input of every layer.
        input_dropout: dropout probability for the input of the first layer; None: the same as ``dropout``.
        seed: seed of the initial weights and of the dropout masks.
        normalization, self_loops: the matrix that every layer multiplies by, see ``Propagation``.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    restricts_output = True  # the last block may have fewer targets: nothing after its convolution mixes rows

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 16,
        num_layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float | None = None,
        seed: int = 0,
        normalization: str = "sym",
        self_loops: bool = True,
    ):
        super().__init__()
        self.propagation = Propagation(normalization, self_loops)
        conv = partial(GCNConv, normalization=normalization, self_loops=self_loops)
        self.dropout, self.layers = stack(
            conv, in_channels, out_channels, hidden_channels, num_layers, dropout, input_dropout, seed
        )
        self.num_blocks = num_layers

    @property
    def input_propagation(self) -> Propagation | None:
        """A, if the input X is used only in A @ X, which may then be computed once for all epochs; otherwise None."""
        return self.propagation if self.dropout.p == 0 else None

    def forward(self, x: Input, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the last block's targets."""
        h = self.dropout(x, blocks[0].source_id)
        for layer, block in zip(self.layers, blocks):
            h = layer(h, block)
        return h
