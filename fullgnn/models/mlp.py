"""A baseline that does not use the graph: if a GCN is more accurate than the MLP, this is due to the graph."""

import torch
from torch import Tensor

from fullgnn.models.stack import stack
from fullgnn.nn import Activation, Dropout, Linear
from fullgnn.schemes.base import ShardedAdjacency


class MLP(torch.nn.Module):
    """``num_layers`` dense layers. Arguments, dropout, ReLU and initialisation are those of ``GCN``."""

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
        self.linears, self.dropouts = stack(
            Linear, in_channels, out_channels, hidden_channels, num_layers, dropout, input_dropout, seed
        )

    def forward(self, x: Tensor, adj: ShardedAdjacency) -> Tensor:
        """Map (num_local_nodes, in_channels) to (num_local_nodes, out_channels) logits; reads only ``adj.node_id``."""
        *inner, last = self.linears
        x = self.dropouts[0](x, adj.node_id)
        for linear, dropout in zip(inner, self.dropouts[1:]):
            assert isinstance(dropout, Dropout)
            x = linear(x, Activation(relu=True, dropout=dropout.mask(adj.node_id)))
        return last(x)
