"""A dense layer with the field's initialisation, equal in every precision."""

import torch
from torch import Tensor


class Linear(torch.nn.Module):
    """Y = X W + b, with Glorot-uniform W (Glorot and Bengio, 2010) and b = 0.

    The weights are drawn in float64 and then rounded, so that float32 and float64 runs start from the same point.
    ``W`` is (in_channels, out_channels), as in the papers' formulas.

    Args:
        generator: CPU generator that the weights are drawn from.
    """

    def __init__(self, in_channels: int, out_channels: int, generator: torch.Generator, bias: bool = True):
        super().__init__()
        bound = (6 / (in_channels + out_channels)) ** 0.5
        weight = torch.rand(in_channels, out_channels, generator=generator, dtype=torch.float64) * 2 * bound - bound
        self.weight = torch.nn.Parameter(weight.to(torch.get_default_dtype()))
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(num_local_nodes, in_channels) to (num_local_nodes, out_channels)."""
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)
