"""Graph convolutional network (Kipf and Welling, 2017)."""

import torch
from torch import Tensor

from fullgnn.models.stack import stack
from fullgnn.nn import GCNConv
from fullgnn.schemes.base import ShardedAdjacency


class GCN(torch.nn.Module):
    """``num_layers`` graph convolutions, dropout on the input of each, ReLU between them.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: width of the layers between.
        dropout: probability, for the input of every layer.
        input_dropout: probability for the first layer's input; None takes ``dropout``.
        seed: of the weights and of the dropout masks.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

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
        self.convs, self.dropouts = stack(
            GCNConv, in_channels, out_channels, hidden_channels, num_layers, dropout, input_dropout, seed
        )

    def forward(self, x: Tensor, adj: ShardedAdjacency) -> Tensor:
        """(num_local_nodes, in_channels) to (num_local_nodes, out_channels) logits."""
        for layer, (dropout, conv) in enumerate(zip(self.dropouts, self.convs)):
            x = dropout(x.relu() if layer else x, adj.node_id)
            x = conv(x, adj)
        return x
