"""GCNII, a deep graph convolutional network (Chen et al., 2020)."""

import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.epilogue.epilogue import Activation
from fullgnn.models.stack import Model, check_rates, check_sizes
from fullgnn.nn import Contract, Dropout, GCN2Conv, Linear
from fullgnn.schemes.block import Block


class GCNII(Model):
    """A dense layer gives H0; then ``num_layers`` ``GCN2Conv`` layers that all read H0 too; then a dense layer.

    There is a ReLU behind every layer but the last one, and dropout on the input of each.

    Args:
        hidden_channels: width of H0 and of the hidden layers.
        alpha: how much of H0 every layer gets, in [0, 1).
        theta: how fast the layers' weights approach the identity, lambda in the paper.
        shared_weights: False: GCNII*, see ``GCN2Conv``.
        dropout: dropout probability for the input of every layer.
        input_dropout: dropout probability for the features; None: the same as ``dropout``.
        normalization, self_loops: the matrix that every layer multiplies by, see ``Propagation``.
        bias: whether the dense layers have a bias.
        in_channels, embedding_channels, seed: see ``Model``.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 64,
        num_layers: int = 64,
        alpha: float = 0.1,
        theta: float = 0.5,
        shared_weights: bool = True,
        dropout: float = 0.6,
        input_dropout: float | None = None,
        normalization: str = "sym",
        self_loops: bool = True,
        bias: bool = True,
        embedding_channels: int | None = None,
        seed: int = 0,
    ):
        super().__init__(in_channels, embedding_channels, seed)
        check_sizes(hidden_channels=hidden_channels, num_layers=num_layers)
        check_rates(dropout=dropout, input_dropout=input_dropout)
        if not 0 <= alpha < 1:
            raise ConfigError(f"model.alpha={alpha} is out of range: it must lie in [0, 1)")
        if not theta > 0:
            raise ConfigError(f"model.theta={theta} is too small: it must be above 0")
        generator = torch.Generator().manual_seed(seed)
        self.first = Linear(self.in_channels, hidden_channels, generator, bias)
        self.layers = torch.nn.ModuleList(
            GCN2Conv(hidden_channels, generator, alpha, theta, number, shared_weights, normalization, self_loops)
            for number in range(1, num_layers + 1)
        )
        self.last = Linear(hidden_channels, out_channels, generator, bias)
        self.input_dropout = Dropout(dropout if input_dropout is None else input_dropout, 0, seed)
        self.dropouts = torch.nn.ModuleList(Dropout(dropout, number, seed) for number in range(1, num_layers + 2))

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(num_blocks=len(self.layers), restricts_output=True, reads_sparse_rows=self.embedding is None)

    def forward(self, x: Tensor, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the last block's targets."""
        node_id = blocks[0].source_id
        h = self.input_dropout(self.with_embedding(x, blocks[0]), node_id)
        initial = self.first(h, activation=Activation(relu=True))
        h = self.dropouts[0](initial, node_id)
        for layer, block, dropout in zip(self.layers, blocks, [*self.dropouts][1:], strict=True):
            initial = block.at_targets(initial)
            h = layer(h, initial, block, Activation(True, dropout.mask(block.own_id)))
        return self.last(h)
