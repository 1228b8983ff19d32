"""GraphSAGE (Hamilton, Ying and Leskovec, 2017) with the mean over all neighbours."""

import torch
from torch import Tensor

from fullgnn.models.stack import stack
from fullgnn.nn import SAGEConv
from fullgnn.schemes.block import Block


class SAGE(torch.nn.Module):
    """``num_layers`` ``SAGEConv`` layers. Arguments, dropout, ReLU and initialisation are those of ``GCN``."""

    restricts_output = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float | None = None,
        seed: int = 0,
    ):
        super().__init__()
        self.dropout, self.layers = stack(
            SAGEConv, in_channels, out_channels, hidden_channels, num_layers, dropout, input_dropout, seed
        )
        self.num_blocks = num_layers

    def forward(self, x: Tensor, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the last block's targets."""
        x = self.dropout(x, blocks[0].source_id)
        for layer, block in zip(self.layers, blocks):
            x = layer(x, block)
        return x
