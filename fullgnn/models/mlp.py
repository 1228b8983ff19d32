"""A baseline that does not use the graph: if a GCN is more accurate than the MLP, this is due to the graph."""

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from fullgnn.config.options import takes_options
from fullgnn.models.stack import Stack, StackOptions
from fullgnn.nn import Contract, Linear
from fullgnn.schemes.block import Block


class MLP(Stack):
    """``num_layers`` dense layers with dropout on the input of each one and ReLU between them.

    Args:
        in_channels, out_channels: see ``Stack``; options: see ``StackOptions``.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    @takes_options(StackOptions)
    def __init__(self, in_channels: int, out_channels: int, **options: Any):
        chosen = StackOptions(**options)
        super().__init__(partial(Linear, bias=chosen.bias), in_channels, out_channels, chosen)

    def contract(self) -> Contract:
        """See ``Contract``. One block names the rows, whose ids the dropout needs."""
        disables = {"loss_rows_only": "an MLP computes the output of every node; leave this key at auto"}
        own = replace(super().contract(), num_blocks=1, num_row_blocks=1)
        return replace(own, restricts_output=False, disables=disables)

    def forward(self, x: Tensor, blocks: list[Block]) -> Tensor:  # type: ignore[override]  # it never gets A X
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the block's targets."""
        return super().forward(x, blocks * len(self.layers))
