"""A dense layer over a constant input that stays on the host, computed one chunk of rows after the other."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.kernels.dense.dense import linear_gradients, matmul
from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.kernels.epilogue.activation import Activation


def streamed_linear(x: HostRows, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    """The activation of X W + b, differentiable in W and b; (n, f), (f, g) and (g,) to (n, g)."""
    return _StreamedLinear.apply(weight, bias, x, activation)


class _StreamedLinear(torch.autograd.Function):
    """Forward computes the rows of one chunk at a time. Backward adds the chunks' X^T G' in the order of the rows."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, x: HostRows, activation: Activation) -> Tensor:
        y, epilogue = weight.new_empty(x.num_rows, weight.shape[1]), activation.epilogue(bias)
        for rows, chunk in x.chunks():
            y[rows] = matmul(chunk, weight, epilogue.of(rows))
        ctx.save_for_backward(y if activation.relu else None)
        ctx.x, ctx.scale = x, activation.scale
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (output,) = ctx.saved_tensors
        total: list[Tensor] = []
        for rows, chunk in ctx.x.chunks():
            part = None if output is None else output[rows]
            gradients = linear_gradients(chunk, grad[rows], part, ctx.scale, keep_masked=False)[:2]
            total = [a.add_(b) for a, b in zip(total, gradients)] if total else [*gradients]
        grad_weight, grad_bias = total
        return grad_weight, grad_bias if ctx.needs_input_grad[1] else None, None, None
