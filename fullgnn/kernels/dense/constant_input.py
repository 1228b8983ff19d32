"""A dense layer over a constant input: Y = X W + b, where X is read by the methods of its own class.

``HostRows`` stay on the host, and their products are computed one chunk of rows after the other. ``SparseRows`` are
multiplied as a sparse matrix.
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function

from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.epilogue.epilogue import Activation


def constant_linear(x: HostRows | SparseRows, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    """The activation of X W + b, differentiable in W and b; (n, f), (f, g) and (g,) to (n, g)."""
    return _ConstantLinear.apply(weight, bias, x, activation)


class _ConstantLinear(Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, bias: Tensor | None, x: HostRows | SparseRows, activation: Activation
    ) -> Tensor:
        y = x.multiply(weight, activation.epilogue(bias))
        ctx.save_for_backward(y if activation.relu else None)
        ctx.x, ctx.scale = x, activation.scale
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (output,) = ctx.saved_tensors
        grad_weight, grad_bias = ctx.x.linear_gradients(grad, output, ctx.scale)
        return grad_weight, grad_bias if ctx.needs_input_grad[1] else None, None, None
