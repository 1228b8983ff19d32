"""The same network without the graph: what the graph is worth is the difference to it."""

import torch
from torch import Tensor

from fullgnn.models.layout import channels, dropout_rates
from fullgnn.nn import Dropout, Linear
from fullgnn.schemes.base import ShardedAdjacency


class MLP(torch.nn.Module):
    """``num_layers`` dense layers; arguments, dropout and initialisation as in ``GCN``."""

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
        widths = channels(in_channels, hidden_channels, out_channels, num_layers)
        rates = dropout_rates(dropout, input_dropout, num_layers)
        generator = torch.Generator().manual_seed(seed)
        self.linears = torch.nn.ModuleList(Linear(a, b, generator) for a, b in zip(widths, widths[1:]))
        self.dropouts = torch.nn.ModuleList(Dropout(rate, layer, seed) for layer, rate in enumerate(rates))

    def forward(self, x: Tensor, adj: ShardedAdjacency) -> Tensor:
        """(num_local_nodes, in_channels) to (num_local_nodes, out_channels) logits; ``adj`` only names the rows."""
        for layer, (dropout, linear) in enumerate(zip(self.dropouts, self.linears)):
            x = dropout(x.relu() if layer else x, adj.node_id)
            x = linear(x)
        return x
