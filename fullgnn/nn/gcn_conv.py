"""The graph convolution of Kipf and Welling (2017), multiplied in the cheapest order."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.kernels.dense.dense import (
    activation_gradients,
    linear_gradients,
    matmul,
    matmul_aligned,
    matmul_nt,
    scales_rows,
    weight_gradient,
)
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.epilogue.epilogue import IDENTITY, Activation
from fullgnn.nn.linear import Linear, linear
from fullgnn.schemes.block import Block, FusedProduct, Input, InputRows, PropagatedInput, copied

SPMM_ORDERS = ("width", "transform", "propagate")


class GCNConv(torch.nn.Module):
    """Z = A H W + b, with the normalised adjacency A.

    The products with A and with W may be computed in either order. The product with A takes most of the time and all of
    the communication, so A should multiply the narrower matrix. With f = in_channels, g = out_channels and the gradient
    G of Z, the matrices that A or A^T multiplies have these widths:

                           forward     gradient of W        gradient of H
        A (H W)            g           A^T G first: g       then (A^T G) W^T: 0 more
        (A H) W            f           (A H)^T G: 0         A^T (G W^T): f, or (A^T G) W^T: g

    ``spmm_order`` chooses the order: ``width`` takes the one with the least sum of forward and backward widths;
    ``transform`` takes A (H W), as the code of Miao et al. 2023 does; ``propagate`` takes (A H) W and (A^T G) W^T, as
    CAGNET does.

    Args:
        generator: CPU generator from which the weights are drawn.
        normalization, self_loops: what A is, see ``Propagation``.
        bias: whether there is a b.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).

    Raises:
        ConfigError: an unknown normalisation.
    """

    fuses_activation = True  # see ``Layer``
    reads_input_rows = reads_sparse_rows = True  # see ``Stack``
    spmm_order = "width"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        generator: torch.Generator,
        normalization: str = "sym",
        self_loops: bool = True,
        bias: bool = True,
    ):
        super().__init__()
        self.propagation = Propagation(normalization, self_loops)
        self.linear = Linear(in_channels, out_channels, generator, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None

    def forward(self, x: Input, block: Block, activation: Activation = IDENTITY) -> Tensor:
        """Return ``activation`` of Z."""
        weight, bias = self.linear.weight, self.bias
        if isinstance(x, PropagatedInput):
            return linear(x.rows(block, self.propagation), weight, bias, activation)
        product = block.product(self.propagation)
        if isinstance(x, SparseRows):  # A X has more entries than X, so X W comes first
            return _Propagate.apply(linear(x, weight), bias, product, activation)
        f, g = weight.shape
        first = self.propagates_first(x, block)
        if first is None:
            propagate_first, gradient_width = self._order(f, g, x.requires_grad)
        else:
            propagate_first, gradient_width = first, f if first else g
        if propagate_first and gradient_width == weight.shape[0]:
            return linear(product.spmm(x), weight, bias, activation)
        return _Convolve.apply(copied(x), weight, bias, product, propagate_first, activation)

    def propagates_first(self, x: Tensor | InputRows, block: Block) -> bool | None:
        """What the product with A of ``block`` asks for, see ``FusedProduct``; None: nothing, or the order is set."""
        if self.spmm_order != "width":
            return None
        f, g = self.linear.weight.shape
        return block.product(self.propagation).propagates_first(f, g, x.requires_grad)

    def _order(self, f: int, g: int, needs_input_gradient: bool) -> tuple[bool, int]:
        """Whether A H is computed first, and how wide a matrix A^T then multiplies for the gradient of H."""
        if self.spmm_order != "width":
            return self.spmm_order == "propagate", g
        gradient_width = min(f, g)
        if not torch.is_grad_enabled():
            return f < g, gradient_width
        return f + (gradient_width if needs_input_gradient else 0) < 2 * g, gradient_width


def set_spmm_order(model: torch.nn.Module, spmm_order: str) -> None:
    """Set ``spmm_order``, one of ``SPMM_ORDERS``, of every module of ``model`` that has this attribute."""
    for module in model.modules():
        if hasattr(module, "spmm_order"):
            module.spmm_order = spmm_order  # type: ignore[assignment]


class _Propagate(torch.autograd.Function):
    """The activation of A Y + b."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor | None, product: FusedProduct, activation: Activation) -> Tensor:
        z = product.multiply(y.detach(), activation.epilogue(bias))
        ctx.save_for_backward(z if activation.relu else None)
        ctx.product, ctx.scale = product, activation.scale
        return z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (output,) = ctx.saved_tensors
        grad_y, grad_bias = _gradient_of_product(ctx.product, grad, output, ctx.scale)
        return grad_y, grad_bias if ctx.needs_input_grad[1] else None, None, None


def _gradient_of_product(
    product: FusedProduct, grad: Tensor, output: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """A^T G' and the column sums of G', from the gradient of the activation of A Y + b; see ``linear_gradients``."""
    row_scale = product.multiply_t.input_scale if scales_rows(grad) else None
    masked, sums = activation_gradients(grad, output, scale, row_scale)
    return product.multiply_t(masked, scaled=row_scale is not None), sums


class _Convolve(torch.autograd.Function):
    """A (X W) + b or (A X) W + b. The gradient of X is (A^T G) W^T in both: backward multiplies G by A^T first."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        product: FusedProduct,
        propagate_first: bool,
        activation: Activation,
    ) -> Tensor:
        ctx.product, ctx.propagated = product, propagate_first
        if propagate_first:
            x = product.multiply(x.detach())
            y = matmul(x, weight, activation.epilogue(bias))
        else:
            scale = product.multiply.input_scale if scales_rows(x) else None
            transformed = matmul_aligned(x.detach(), weight, scale)
            y = product.multiply(transformed, activation.epilogue(bias), scaled=scale is not None)
        ctx.save_for_backward(x, weight, y if activation.relu else None)
        ctx.scale = activation.scale
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, output = ctx.saved_tensors  # x is A X if this product was computed first
        needs_grad_x = ctx.needs_input_grad[0]
        if ctx.propagated:
            grad_weight, grad_bias, masked = linear_gradients(x, grad, output, ctx.scale, keep_masked=needs_grad_x)
            grad_x = None if masked is None else matmul_nt(ctx.product.multiply_t(masked), weight)
        else:
            propagated, grad_bias = _gradient_of_product(ctx.product, grad, output, ctx.scale)
            grad_weight = weight_gradient(x, propagated)
            grad_x = matmul_nt(propagated, weight) if needs_grad_x else None
        return grad_x, grad_weight, grad_bias if ctx.needs_input_grad[2] else None, None, None, None
