"""Approximate personalised propagation of neural predictions (Gasteiger, Bojchevski and Guennemann, 2019)."""

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from fullgnn.config.options import takes_options
from fullgnn.errors import ConfigError
from fullgnn.graph import Propagation
from fullgnn.models.stack import Stack, StackOptions, check_sizes
from fullgnn.nn import Contract, Linear, propagate_with_restart
from fullgnn.schemes.block import Block


class APPNP(Stack):
    """``num_layers`` dense layers give H; then Z_K of Z_0 = H and Z_k = (1 - alpha) A Z_(k-1) + alpha H is the result.

    A multiplies as many columns as there are classes.

    Args:
        num_hops: K.
        alpha: the probability with which the random walk restarts, in (0, 1].
        normalization, self_loops: what A is, see ``Propagation``.
        in_channels, out_channels: see ``Stack``; options: see ``StackOptions``.

    Raises:
        ConfigError: a width, depth or probability is out of range.
    """

    @takes_options(StackOptions)
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_hops: int = 10,
        alpha: float = 0.1,
        normalization: str = "sym",
        self_loops: bool = True,
        **options: Any,
    ):
        check_sizes(num_hops=num_hops)
        if not 0 < alpha <= 1:
            raise ConfigError(f"model.alpha={alpha} is not the probability of a restart: it must lie in (0, 1]")
        chosen = StackOptions(**options)
        super().__init__(partial(Linear, bias=chosen.bias), in_channels, out_channels, chosen)
        self.propagation, self.alpha = Propagation(normalization, self_loops), alpha
        self.num_hops = num_hops

    def contract(self) -> Contract:
        """See ``Contract``. The first block names the rows of the dense layers."""
        own = replace(super().contract(), num_blocks=self.num_hops + 1, num_row_blocks=1)
        return replace(own, propagations=(self.propagation,), restricts_output=True)

    def forward(self, x: Tensor, blocks: list[Block]) -> Tensor:  # type: ignore[override]  # it never gets A X
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the last block's targets."""
        h = super().forward(x, blocks[:1] * len(self.layers))
        return propagate_with_restart(h, blocks[1:], self.propagation, 1 - self.alpha, self.alpha)
