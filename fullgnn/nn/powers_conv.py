"""Convolutions with several powers of A side by side, the layer of N-GCN (Abu-El-Haija et al., 2019)."""

import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.nn.contract import Contract
from fullgnn.nn.linear import glorot, linear
from fullgnn.nn.propagate import propagate_powers
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import Input, InputRows, PropagatedInput


class PowersConv(torch.nn.Module):
    """Z_kc = A^k H_kc W_kc + b_kc for the powers k = 0 to K - 1 and the copies c = 1 to r, all side by side.

    All branches share K - 1 products with A: product i multiplies the columns of the powers that need at least i more,
    i r g columns.

    Args:
        in_channels: f, columns of an H_kc, or of the H that all of them are.
        out_channels: g, columns of a Z_kc.
        generator: CPU generator from which the weights are drawn, Glorot-uniform.
        shared_input: whether every H_kc is the same H.
        num_powers: K, at least 2.
        num_copies: r.
        normalization, self_loops: what A is, see ``Propagation``.
        bias: whether there is a b.

    Shapes:
        x: (num_sources, f) with ``shared_input``, else (num_sources, K * r * f); output: (num_own_targets, K * r * g).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        generator: torch.Generator,
        shared_input: bool,
        num_powers: int,
        num_copies: int,
        normalization: str = "sym",
        self_loops: bool = True,
        bias: bool = True,
    ):
        super().__init__()
        self.propagation = Propagation(normalization, self_loops)
        self.num_powers, self.shared_input = num_powers, shared_input
        drawn = glorot(in_channels, out_channels, generator, num_powers * num_copies)
        self.weight = torch.nn.Parameter(drawn)  # (K * r, f, g)
        self.bias = torch.nn.Parameter(torch.zeros(num_powers * num_copies * out_channels)) if bias else None

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(propagations=(self.propagation,))

    def forward(self, x: Input, blocks: list[Block]) -> Tensor:
        """Return Z.

        Args:
            blocks: K - 1 of them; the sources of one are the targets of the one before.
        """
        x = x.copied() if isinstance(x, InputRows) else x
        if isinstance(x, PropagatedInput):
            rows = [x.rows(blocks[-1], self.propagation, power) for power in range(self.num_powers)]
            z = torch.cat([linear(of_power, weight) for of_power, weight in zip(rows, self._shared_weights())], dim=1)
        else:
            if self.shared_input:
                y = linear(x, torch.cat(self._shared_weights(), dim=1))
            else:
                assert isinstance(x, Tensor)  # the features are shared by all branches
                by_branch = x.unflatten(1, (len(self.weight), -1)).transpose(0, 1)
                y = torch.bmm(by_branch, self.weight).transpose(0, 1).flatten(1)
            z = propagate_powers(y.chunk(self.num_powers, dim=1), blocks, self.propagation)
        return z if self.bias is None else z + self.bias

    def _shared_weights(self) -> list[Tensor]:
        """For each power, the (f, r * g) weights of its copies side by side."""
        by_power = self.weight.unflatten(0, (self.num_powers, -1)).transpose(1, 2)
        return [weight.flatten(1) for weight in by_power]
