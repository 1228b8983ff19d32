"""A baseline that does not use the graph: if a GCN is more accurate than the MLP, this is due to the graph."""

import torch
from torch import Tensor

from fullgnn.models.stack import stack
from fullgnn.nn import Linear
from fullgnn.schemes.block import Block


class MLP(torch.nn.Module):
    """``num_layers`` dense layers. Arguments, dropout, ReLU and initialisation are those of ``GCN``."""

    num_blocks = 1  # names the rows, whose ids the dropout needs; its edges are not read

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
        self.dropout, self.layers = stack(
            Linear, in_channels, out_channels, hidden_channels, num_layers, dropout, input_dropout, seed
        )

    def forward(self, x: Tensor, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the block's targets."""
        (block,) = blocks
        x = self.dropout(block.at_targets(x), block.own_id)
        for layer in self.layers:
            x = layer(x, block)
        return x
