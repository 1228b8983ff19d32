"""Norms between the layers of a model: over all nodes of the graph, or over the columns of a node."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fullgnn.errors import ConfigError
from fullgnn.schemes.block import Block

NORMS = ("batch", "layer")


def make_norm(norm: str | None, channels: int) -> torch.nn.Module | None:
    """Build a ``BatchNorm`` or a ``LayerNorm`` for rows of ``channels`` columns; None for None.

    Raises:
        ConfigError: another name.
    """
    if norm is None:
        return None
    if norm not in NORMS:
        raise ConfigError(f"model.norm={norm} is not known: choose one of null, {', '.join(NORMS)}")
    return BatchNorm(channels) if norm == "batch" else LayerNorm(channels)


class LayerNorm(torch.nn.LayerNorm):
    """Layer normalisation of each node's row (Ba, Kiros and Hinton, 2016)."""

    def forward(self, x: Tensor, block: Block) -> Tensor:  # type: ignore[override]
        """Map (n, channels) to (n, channels). It reads no other rows: the block is not used."""
        return super().forward(x)


class BatchNorm(torch.nn.Module):
    """Batch normalisation over all nodes of the graph (Ioffe and Szegedy, 2015), the same on any number of ranks.

    While training, mean and variance are those of the rows of all ranks, from one sum over the ranks in float64; the
    backward pass needs one more. In evaluation, the running mean and variance are used, as in ``torch.nn.BatchNorm1d``,
    whose parameters, buffers and arguments these are. Every rank calls it, with the rows of all its nodes.
    """

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = torch.nn.Parameter(torch.ones(channels))
        self.bias = torch.nn.Parameter(torch.zeros(channels))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor, block: Block) -> Tensor:
        """Map (num_own_targets, channels) to (num_own_targets, channels)."""
        if not self.training:
            statistics = self.running_mean, self.running_var
            return functional.batch_norm(x, *statistics, self.weight, self.bias, False, 0.0, self.eps)
        mean, var, count = _moments(x.detach(), self.running_mean, block)
        with torch.no_grad():
            unbiased = var * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean.to(x.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(x.dtype), self.momentum)
        return _Normalize.apply(x, self.weight, self.bias, mean, (var + self.eps).rsqrt(), count, block)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}"


def _moments(x: Tensor, shift: Tensor, block: Block) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance (channels,), and the number (1,) of the rows of all ranks, float64.

    Args:
        shift: (channels,), equal on all ranks; the nearer it is to the mean, the fewer digits the variance loses.
    """
    rows, shift = x - shift, shift.double()
    count = shift.new_full((1,), len(rows))
    sums = [rows.sum(0, dtype=torch.float64), rows.square().sum(0, dtype=torch.float64), count]
    total, squares, count = block.sum_over_rows(torch.cat(sums)).split([len(shift), len(shift), 1])
    mean = total / count
    return shift + mean, (squares / count - mean**2).clamp(min=0), count


class _Normalize(torch.autograd.Function):
    """Y = (X - mean) * scale * weight + bias, where mean and scale are those of the rows of all ranks."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, count: Tensor, block: Block
    ) -> Tensor:
        mean, scale = mean.to(x.dtype), scale.to(x.dtype)
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.count, ctx.block = count, block
        factor = scale * weight
        return torch.addcmul(bias - mean * factor, x, factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, mean, scale = ctx.saved_tensors
        normalized = (x - mean).mul_(scale)
        own = torch.cat([(grad * normalized).sum(0, dtype=torch.float64), grad.sum(0, dtype=torch.float64)])
        of_all = (ctx.block.sum_over_rows(own.clone()) / ctx.count).to(x.dtype)
        of_weight, of_bias = own.to(x.dtype).chunk(2)
        of_scale, of_mean = of_all.chunk(2)
        of_x = torch.addcmul(grad - of_mean, normalized, of_scale, value=-1).mul_(scale * weight)
        return of_x, of_weight, of_bias, None, None, None, None
