"""A dense layer with the field's initialisation, equal in every precision."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.nn.matmul import matmul, matmul_nt, matmul_tn


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
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X W + b, differentiable; (n, f), (f, g) and (g,) to (n, g)."""
    y = _MatMul.apply(x, weight)
    return y if bias is None else y.add_(bias)


class _MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return matmul(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad
        return matmul_nt(grad, weight) if wants_x else None, matmul_tn(x, grad) if wants_weight else None
