"""Graph convolutional network (Kipf and Welling, 2017)."""

import torch
from torch import Tensor

from fullgnn.models.stack import stack
from fullgnn.nn import GCNConv
from fullgnn.schemes.base import Aggregated, ShardedAdjacency


class GCN(torch.nn.Module):
    """``num_layers`` graph convolutions with dropout on the input of each one and ReLU between them.

    Args:
        in_channels: number of features of a node.
        out_channels: number of classes.
        hidden_channels: width of the hidden layers.
        dropout: dropout probability for the input of every layer.
        input_dropout: dropout probability for the input of the first layer; None: the same as ``dropout``.
        seed: seed of the initial weights and of the dropout masks.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    restricts_output = True  # nothing after the last convolution mixes rows, so it may compute only the requested ones

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
        """Whether the input X is used only in A @ X, which may then be computed once for all epochs."""
        return self._input_dropout == 0

    def forward(self, x: Tensor | Aggregated, adj: ShardedAdjacency) -> Tensor:
        """Map (num_local_nodes, in_channels) to the (num_local_rows, out_channels) logits of ``adj.output``'s rows."""
        *inner, last = self.convs
        x = self.dropouts[0](x, adj.node_id)
        for conv, dropout in zip(inner, self.dropouts[1:]):
            x = conv(x, adj, relu=True, dropout=dropout)
        return last(x, adj.output)
