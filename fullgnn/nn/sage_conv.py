"""The GraphSAGE layer of Hamilton, Ying and Leskovec (2017), with the mean over all neighbours."""

import torch
from torch import Tensor

from fullgnn.nn.gcn_conv import GCNConv
from fullgnn.nn.linear import Linear, linear
from fullgnn.schemes.block import Block, Input, PropagatedInput


class SAGEConv(torch.nn.Module):
    """Z_i = H_i W_root + mean over the neighbours j of node i of H_j W + b. In a graph with edge weights, the mean is
    weighted by them.

    Args:
        generator: CPU generator from which the weights are drawn.
        bias: whether there is a b.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).
    """

    def __init__(self, in_channels: int, out_channels: int, generator: torch.Generator, bias: bool = True):
        super().__init__()
        self.neighbors = GCNConv(in_channels, out_channels, generator, "row", self_loops=False, bias=bias)
        self.root = Linear(in_channels, out_channels, generator, bias=False)

    def forward(self, x: Input, block: Block) -> Tensor:
        """Return Z."""
        if isinstance(x, PropagatedInput):
            own = x.rows(block, self.neighbors.propagation, 0)
        else:
            own = block.at_targets(x)
        return self.neighbors(x, block) + linear(own, self.root.weight)
