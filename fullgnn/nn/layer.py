"""A layer of a model: a convolution with its skip connection, norm, activation, and the next input's dropout."""

from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.epilogue.epilogue import Activation
from fullgnn.nn.contract import contract_of
from fullgnn.nn.dropout import Dropout
from fullgnn.nn.linear import Linear
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import Input, InputRows


class Layer(torch.nn.Module):
    """dropout(activation(norm(conv(x, block) + skip(x)))).

    Without skip connection and norm, a convolution whose contract says ``fuses_activation`` takes a ReLU, and a dropout
    after it, as a third argument of its ``forward``: it applies them while it writes its result, which saves a pass
    over the result and, in the backward pass, the memory of Z. Otherwise the parts run one after the other. Both give
    the same numbers.

    Args:
        conv: ``forward(x, block)``.
        activation: a function of a tensor, such as ``torch.nn.ReLU()``; None: no activation.
        dropout: the dropout of the result; None: no dropout.
        norm: ``forward(x, block)``, as ``BatchNorm`` and ``LayerNorm``; None: no norm.
        skip: maps the input's rows at the targets to the width of the convolution's result, as ``torch.nn.Identity()``
            or ``Linear``; None: no skip connection.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).
    """

    def __init__(
        self,
        conv: torch.nn.Module,
        activation: Callable[[Tensor], Tensor] | None = None,
        dropout: Dropout | None = None,
        norm: torch.nn.Module | None = None,
        skip: torch.nn.Module | None = None,
    ):
        super().__init__()
        self.conv, self.activation, self.dropout, self.norm, self.skip = conv, activation, dropout, norm, skip
        self._relu = isinstance(activation, torch.nn.ReLU)
        plain = norm is None and skip is None
        fusible = plain and (self._relu or (activation is None and dropout is None))
        self.fuses_activation = fusible and contract_of(conv).fuses_activation

    def forward(self, x: Input, block: Block) -> Tensor:
        if self.fuses_activation:
            mask = None if self.dropout is None else self.dropout.mask(block.own_id)
            return self.conv(x, block, Activation(self._relu, mask))
        h = self.conv(x, block)
        if self.skip is not None:
            h = h + self._skipped(x, block)
        if self.norm is not None:
            h = self.norm(h, block)
        if self.activation is not None:
            h = self.activation(h)
        return h if self.dropout is None else self.dropout(h, block.own_id)

    def _skipped(self, x: Input, block: Block) -> Tensor:
        """The skip connection of the input at the targets. A ``Linear`` reads one chunk after the other from the
        host."""
        assert self.skip is not None
        if isinstance(x, SparseRows):
            assert isinstance(self.skip, Linear)  # see ``Stack.contract``
            return self.skip.at_targets(x, block)
        if isinstance(x, Tensor):
            return self.skip(block.at_targets(x))
        if isinstance(x, InputRows):
            return self.skip(x.copied(block.target_index))
        rows = x.rows(block, x.propagation, 0)
        return self.skip(rows.on_device() if isinstance(rows, HostRows) and not isinstance(self.skip, Linear) else rows)
