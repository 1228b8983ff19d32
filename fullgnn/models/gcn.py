"""Graph convolutional network (Kipf and Welling, 2017)."""

import torch
from torch import Tensor

from fullgnn.models.stack import stack
from fullgnn.nn import GCNConv
from fullgnn.schemes.base import Aggregated, ShardedAdjacency


class GCN(torch.nn.Module):
    """``num_layers`` graph convolutions, dropout on the input of each, ReLU between them.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: width of the hidden layers.
        dropout: probability for the input of every layer.
        input_dropout: probability for the first layer's input; None takes ``dropout``.
        seed: seed of the initial weights and of the dropout masks.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    restricts_output = True  # nothing after the last convolution mixes rows, so that one may compute only some rows

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 16,
        num_layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float | None = None,
        seed: int = 0,
    ):
        super().__init__()
        self._input_dropout = dropout if input_dropout is None else input_dropout
        self.convs, self.dropouts = stack(
            GCNConv, in_channels, out_channels, hidden_channels, num_layers, dropout, input_dropout, seed
        )

    @property
    def aggregates_input(self) -> bool:
        """Whether the input is used only as A @ X, which may then be computed once."""
        return self._input_dropout == 0

    def forward(self, x: Tensor | Aggregated, adj: ShardedAdjacency) -> Tensor:
        """(num_local_nodes, in_channels) to (num_local_rows, out_channels) logits of ``adj.output``'s rows."""
        *inner, last = self.convs
        x = self.dropouts[0](x, adj.node_id)
        for conv, dropout in zip(inner, self.dropouts[1:]):
            x = conv(x, adj, relu=True, dropout=dropout)
        return last(x, adj.output)
