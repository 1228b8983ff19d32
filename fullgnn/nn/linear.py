"""A dense layer with Glorot initialisation, which starts from the same weights in every precision."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.kernels.dense.dense import linear_gradients, matmul, matmul_nt
from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.epilogue.epilogue import IDENTITY, Activation
from fullgnn.nn.contract import Contract
from fullgnn.schemes.block import Block


class Linear(torch.nn.Module):
    """Y = X W + b, with Glorot-uniform W (Glorot and Bengio, 2010) and b = 0.

    The weights are drawn in float64 and then rounded, so that float32 and float64 runs start from the same point.
    W is (in_channels, out_channels), as in the papers' formulas, and not transposed as in ``torch.nn.Linear``.

    Args:
        generator: CPU generator from which the weights are drawn.
    """

    def __init__(self, in_channels: int, out_channels: int, generator: torch.Generator, bias: bool = True):
        super().__init__()
        self.weight = torch.nn.Parameter(glorot(in_channels, out_channels, generator))
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(fuses_activation=True, reads_sparse_rows=True)

    def forward(
        self, x: Tensor | HostRows | SparseRows, block: Block | None = None, activation: Activation = IDENTITY
    ) -> Tensor:
        """Map (n, in_channels) to (n, out_channels).

        A dense layer reads no neighbours and does not use ``block``, which is here since ``Layer`` passes it.
        """
        return linear(x, self.weight, self.bias, activation)

    def at_targets(self, x: Tensor | SparseRows, block: Block) -> Tensor:
        """Map the rows of ``x`` at the targets of ``block``: (num_sources, f) to (num_own_targets, g). Of sparse rows,
        the results of all are computed, and those of the targets taken."""
        return block.at_targets(self(x)) if isinstance(x, SparseRows) else self(block.at_targets(x))


def glorot(in_channels: int, out_channels: int, generator: torch.Generator, num: int | None = None) -> Tensor:
    """(in_channels, out_channels) Glorot-uniform numbers, drawn in float64 and rounded to the default dtype.

    Args:
        num: of such matrices, which are drawn one after the other and returned as (num, in_channels, out_channels).
    """
    bound = (6 / (in_channels + out_channels)) ** 0.5
    shape = (in_channels, out_channels) if num is None else (num, in_channels, out_channels)
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64)
    # In place: other arithmetic on the device "meta" makes torch import its compiler, which takes seconds.
    drawn.mul_(2).mul_(bound).sub_(bound)
    return drawn.to(torch.get_default_dtype())


def linear(
    x: Tensor | HostRows | SparseRows, weight: Tensor, bias: Tensor | None = None, activation: Activation = IDENTITY
) -> Tensor:
    """Return ``activation`` of X W + b, differentiable; X is (n, f), W is (f, g), b is (g,), the result is (n, g)."""
    return _Linear.apply(x, weight, bias, activation)


class _Linear(torch.autograd.Function):
    """X W + b with its activation. Bias and activation are fused into the products of both passes; see ``dense.py``.

    A constant X, which has no gradient, is multiplied by methods of its own class: ``HostRows`` stay on the host, and
    their products are computed one chunk of rows after the other; ``SparseRows`` are multiplied as a sparse matrix.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor | HostRows | SparseRows, weight: Tensor, bias: Tensor | None, activation: Activation
    ) -> Tensor:
        ctx.scale, ctx.constant, epilogue = activation.scale, None, activation.epilogue(bias)
        kept: tuple[Tensor | None, ...] = (None, None)
        if isinstance(x, Tensor):
            y, kept = matmul(x, weight, epilogue), (x, weight)
        else:
            y, ctx.constant = x.multiply(weight, epilogue), x
        ctx.save_for_backward(*kept, y if activation.relu else None)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, output = ctx.saved_tensors
        needs_grad_x, _, needs_grad_bias, _ = ctx.needs_input_grad
        if ctx.constant is not None:
            grad_weight, grad_bias = ctx.constant.linear_gradients(grad, output, ctx.scale)
            return None, grad_weight, grad_bias if needs_grad_bias else None, None
        grad_weight, grad_bias, masked = linear_gradients(x, grad, output, ctx.scale, keep_masked=needs_grad_x)
        grad_x = matmul_nt(masked, weight) if masked is not None else None
        return grad_x, grad_weight, grad_bias if needs_grad_bias else None, None
