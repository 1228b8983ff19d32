"""The layer of GCNII (Chen et al., 2020), with an initial residual and an identity mapping."""

import math

import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.kernels.epilogue.epilogue import IDENTITY, Activation
from fullgnn.nn.contract import Contract
from fullgnn.nn.linear import glorot, linear
from fullgnn.schemes.block import Block


class GCN2Conv(torch.nn.Module):
    """Z = ((1 - alpha) A H + alpha H0) ((1 - beta) I + beta W), with the normalised adjacency A (Chen et al., 2020,
    equation 5).

    Args:
        generator: CPU generator from which the weights are drawn.
        alpha: how much of the first layer's H0 every layer gets, in [0, 1).
        theta: with the number l of the layer, from 1, beta = log(theta / l + 1).
        layer: l.
        shared_weights: False: A H and H0 have a W of their own, as in GCNII*.
        normalization, self_loops: what A is, see ``Propagation``.

    Shapes:
        x: (num_sources, channels), initial and output: (num_own_targets, channels).
    """

    def __init__(
        self,
        channels: int,
        generator: torch.Generator,
        alpha: float,
        theta: float,
        layer: int,
        shared_weights: bool = True,
        normalization: str = "sym",
        self_loops: bool = True,
    ):
        super().__init__()
        self.propagation = Propagation(normalization, self_loops)
        self.alpha, self.beta = alpha, math.log(theta / layer + 1)
        self.weight = torch.nn.Parameter(glorot(channels, channels, generator))
        self.initial_weight = None
        if not shared_weights:
            self.initial_weight = torch.nn.Parameter(glorot(channels, channels, generator))

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(propagations=(self.propagation,))

    def forward(self, x: Tensor, initial: Tensor, block: Block, activation: Activation = IDENTITY) -> Tensor:
        """Return ``activation`` of Z."""
        propagated = block.product(self.propagation).spmm(x)
        if self.initial_weight is None:
            mixed = propagated.add_(initial, alpha=self.alpha / (1 - self.alpha))
            return linear(mixed, self._mapping(self.weight, 1 - self.alpha), None, activation)
        both = torch.cat([propagated, initial], dim=1)
        mappings = self._mapping(self.weight, 1 - self.alpha), self._mapping(self.initial_weight, self.alpha)
        return linear(both, torch.cat(mappings), None, activation)

    def _mapping(self, weight: Tensor, factor: float) -> Tensor:
        """``factor`` ((1 - beta) I + beta W)."""
        identity = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
        return torch.lerp(identity, weight, self.beta) * factor
