"""Norms between the layers of a model: over all nodes of the graph, or over the columns of a node."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fullgnn.errors import ConfigError
from fullgnn.nn.contract import Contract
from fullgnn.schemes.block import Block

NORMS = ("batch", "layer")


def make_norm(norm: str, channels: int) -> torch.nn.Module:
    """Build a ``BatchNorm`` or a ``LayerNorm`` for rows of ``channels`` columns.

    Raises:
        ConfigError: another name.
    """
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

    While training, mean and variance are those of the rows of all ranks: each rank finds the mean of its own rows and
    their squares around this mean, in float64, and one all-gather brings them together. The backward pass needs one
    more. So nothing is lost where the mean is large beside the standard deviation. In evaluation, the running mean and
    variance are used, as in ``torch.nn.BatchNorm1d``, whose parameters, buffers and arguments these are. Every rank
    calls it, with the rows of all its nodes. CUDA-graph safe: no host synchronisation.
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

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(joins_rows=True)

    def forward(self, x: Tensor, block: Block) -> Tensor:
        """Map (num_own_targets, channels) to (num_own_targets, channels)."""
        if not self.training:
            statistics = self.running_mean, self.running_var
            return functional.batch_norm(x, *statistics, self.weight, self.bias, False, 0.0, self.eps)
        with torch.no_grad():
            rows, moments = _moments(x, block)
            unbiased = moments.var * (moments.num_rows / (moments.num_rows - 1).clamp(min=1))
            self.running_mean.lerp_(moments.mean.to(x.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(x.dtype), self.momentum)
        return _Normalize.apply(x, self.weight, self.bias, rows, moments, self.eps, block)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}"


class _Moments(NamedTuple):
    """Mean and variance of the rows of all ranks, float64."""

    mean: Tensor  # (channels,), equal on all ranks, as are var and num_rows
    var: Tensor  # (channels,), the mean square around the mean
    num_rows: Tensor  # (1,), at least 1
    offset: Tensor  # (channels,), of the mean from what this rank has subtracted from its rows


def _moments(x: Tensor, block: Block) -> tuple[Tensor, _Moments]:
    """Return X - s with some s near the mean of this rank's rows, and the moments of the rows of all ranks.

    A difference of numbers that are close to each other is exact, so X - s has all digits that X has. Each rank
    contributes its count n, its s, the mean c of X - s, and m = sum (X - s - c)²; these are joined as by Chan, Golub
    and LeVeque (1979). s and c are kept apart, since their sum would be rounded.
    """
    num_rows, channels = x.shape
    shift = x.sum(0) / max(num_rows, 1)
    rows = x - shift
    around = rows.sum(0, dtype=torch.float64) / max(num_rows, 1)
    squares = rows.square().sum(0, dtype=torch.float64) - num_rows * around.square()
    own = torch.cat([around.new_full((1,), num_rows), shift.double(), around, squares])
    counts, shifts, arounds, squares = block.gather_partial(own).split([1, channels, channels, channels], dim=1)
    if len(counts) == 1:  # fewer launches in one process
        count = counts[0].clamp(min=1)
        return rows, _Moments(shifts[0] + around, squares[0].clamp(min=0) / count, count, around)
    count = counts.sum(0).clamp(min=1)
    mean = (counts * (shifts + arounds)).sum(0) / count
    var = (squares + counts * ((shifts - mean) + arounds).square()).sum(0).clamp(min=0) / count
    offset = (counts * ((shifts - shift) + arounds)).sum(0) / count
    return rows, _Moments(mean, var, count, offset)


class _Normalize(torch.autograd.Function):
    """Y = (X - mean) * scale * weight + bias with scale = 1 / sqrt(var + eps), of the rows of all ranks."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, moments: _Moments, eps: float, block: Block
    ) -> Tensor:
        scale = (moments.var + eps).rsqrt()
        factor = scale * weight
        ctx.save_for_backward(rows, scale, factor, moments.offset, moments.num_rows)
        ctx.block = block
        return torch.addcmul((bias - moments.offset * factor).to(x.dtype), rows, factor.to(x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, scale, factor, offset, count = ctx.saved_tensors
        grad_bias = grad.sum(0, dtype=torch.float64)
        grad_weight = scale * ((grad * rows).sum(0, dtype=torch.float64) - offset * grad_bias)
        grad_all = ctx.block.gather_partial(torch.stack([grad_weight, grad_bias])).sum(0) / count
        grad_square, grad_mean = scale * grad_all[0], grad_all[1]
        coefficients = torch.stack([factor * (offset * grad_square - grad_mean), factor, -factor * grad_square]).to(
            grad.dtype
        )
        grad_x = torch.addcmul(coefficients[0], grad, coefficients[1]).addcmul_(rows, coefficients[2])
        return grad_x, grad_weight.to(grad.dtype), grad_bias.to(grad.dtype), None, None, None, None
