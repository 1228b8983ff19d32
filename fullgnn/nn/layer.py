"""A layer of a model: a convolution, an activation, and the dropout of the next layer's input."""

from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.kernels.epilogue.activation import Activation
from fullgnn.nn.dropout import Dropout
from fullgnn.schemes.block import Block, Input


class Layer(torch.nn.Module):
    """dropout(activation(conv(x, block))).

    A convolution whose attribute ``fuses_activation`` is True takes a ReLU, and a dropout after it, as a third argument
    of its ``forward``: it applies them while it writes its result, which saves a pass over the result and, in the
    backward pass, the memory of Z. Otherwise the three parts run one after the other. Both give the same numbers.

    Args:
        conv: ``forward(x, block)``.
        activation: a function of a tensor, such as ``torch.nn.ReLU()``; None: no activation.
        dropout: the dropout of the result; None: no dropout.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).
    """

    def __init__(
        self,
        conv: torch.nn.Module,
        activation: Callable[[Tensor], Tensor] | None = None,
        dropout: Dropout | None = None,
    ):
        super().__init__()
        self.conv, self.activation, self.dropout = conv, activation, dropout

    def forward(self, x: Input, block: Block) -> Tensor:
        relu = isinstance(self.activation, torch.nn.ReLU)
        fusible = relu or (self.activation is None and self.dropout is None)
        if fusible and getattr(self.conv, "fuses_activation", False):
            mask = None if self.dropout is None else self.dropout.mask(block.own_id)
            return self.conv(x, block, Activation(relu, mask))
        h = self.conv(x, block)
        if self.activation is not None:
            h = self.activation(h)
        return h if self.dropout is None else self.dropout(h, block.own_id)
