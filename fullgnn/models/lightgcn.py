"""LightGCN (He et al., 2020)."""

import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.graph import Propagation
from fullgnn.models.stack import check_sizes
from fullgnn.nn import Contract, NodeEmbedding
from fullgnn.nn.propagate import mean_of_powers
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import Input


class LightGCN(torch.nn.Module):
    """The mean of A^0 E to A^L E, with a trainable vector for each node in E and no other parameter.

    A is D^-1/2 A' D^-1/2 without self-loops, and D has the degrees of the training interactions. Features are not read.
    The L2 penalty of the paper's equation 15 is ``optimizer.weight_decay``.

    Args:
        in_channels: number of features of a node, which are not read.
        out_channels: columns of E, the width of the task's output.
        num_layers: L.
        init_std: standard deviation of the first values of E.
        seed: seed of the first values.

    Raises:
        ConfigError: a width, the depth or the standard deviation is out of range.
    """

    def __init__(self, in_channels: int, out_channels: int, num_layers: int = 3, init_std: float = 0.1, seed: int = 0):
        super().__init__()
        check_sizes(num_layers=num_layers)
        if not 0 < init_std < float("inf"):
            raise ConfigError(f"model.init_std={init_std} is out of range: it must be above 0")
        self.num_layers, self.propagation = num_layers, Propagation("sym", self_loops=False, without_sums="")
        self.embedding = NodeEmbedding(out_channels, seed, std=init_std)

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(num_blocks=self.num_layers, propagations=(self.propagation,), finds_links=True)

    def forward(self, x: Input, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to (num_sources, out_channels); ``blocks`` have every source as a target."""
        return mean_of_powers(self.embedding(blocks[0]), blocks, self.propagation)
