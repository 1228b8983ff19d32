"""The graph convolution of Kipf and Welling (2017)."""

import torch
from torch import Tensor

from fullgnn.nn.linear import Linear
from fullgnn.schemes.base import ShardedAdjacency


class GCNConv(torch.nn.Module):
    """Z = A (H W) + b, with the normalised adjacency A.

    The product with W comes first: A then meets out_channels columns, the narrower side wherever a layer reduces its
    input. Both orders are the same mathematics.

    Shapes:
        x: (num_local_nodes, in_channels), output: (num_local_nodes, out_channels).
    """

    def __init__(self, in_channels: int, out_channels: int, generator: torch.Generator):
        super().__init__()
        self.linear = Linear(in_channels, out_channels, generator, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, adj: ShardedAdjacency) -> Tensor:
        return adj.spmm(self.linear(x)) + self.bias
