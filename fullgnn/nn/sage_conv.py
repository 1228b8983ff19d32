"""The GraphSAGE layer of Hamilton, Ying and Leskovec (2017), with the mean over all neighbours."""

import torch
from torch import Tensor

from fullgnn.nn.gcn_conv import GCNConv
from fullgnn.nn.linear import Linear
from fullgnn.schemes.block import Block


class SAGEConv(torch.nn.Module):
    """Z_i = H_i W_root + mean over the neighbours j of node i of H_j W + b. In a graph with edge weights, the mean is
    weighted by them.

    Args:
        generator: CPU generator from which the weights are drawn.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).
    """

    def __init__(self, in_channels: int, out_channels: int, generator: torch.Generator):
        super().__init__()
        self.neighbors = GCNConv(in_channels, out_channels, generator, normalization="row", self_loops=False)
        self.root = Linear(in_channels, out_channels, generator, bias=False)

    def forward(self, x: Tensor, block: Block) -> Tensor:
        """Return Z."""
        return self.neighbors(x, block) + self.root(block.at_targets(x))
