"""The graph convolution of Kipf and Welling (2017), multiplied in the cheapest order, see ``product_order.py``."""

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
from fullgnn.nn.contract import Contract
from fullgnn.nn.linear import Linear, linear
from fullgnn.nn.product_order import WIDTH, asked_order, multiplies_gradient_first, propagates_first
from fullgnn.schemes.block import Block, BlockProduct, copied
from fullgnn.schemes.inputs import Input, InputRows, PropagatedInput


class GCNConv(torch.nn.Module):
    """Z = A H W + b, with the normalised adjacency A.

    The products with A and with W may be computed in either order, which ``product_order.py`` chooses.

    Args:
        generator: CPU generator from which the weights are drawn.
        normalization, self_loops: what A is, see ``Propagation``.
        bias: whether there is a b.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, out_channels).

    Raises:
        ConfigError: an unknown normalisation.
    """

    spmm_order = WIDTH

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

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(
            propagations=(self.propagation,),
            orders_products=True,
            fuses_activation=True,
            reads_sparse_rows=True,
            reads_input_rows=True,
        )

    def forward(self, x: Input, block: Block, activation: Activation = IDENTITY) -> Tensor:
        """Return ``activation`` of Z."""
        weight, bias = self.linear.weight, self.bias
        if isinstance(x, PropagatedInput):
            return linear(x.rows(block, self.propagation), weight, bias, activation)
        product = block.product(self.propagation)
        if isinstance(x, SparseRows):  # A X has more entries than X, so X W comes first
            return _Propagate.apply(linear(x, weight), bias, product, activation)
        (f, g), asked = weight.shape, self.asked_order(x, block)
        first = propagates_first(self.spmm_order, weight, asked, (min(f, g) if x.requires_grad else 0, g))
        if first and multiplies_gradient_first(self.spmm_order, weight, asked):
            return linear(product.spmm(x), weight, bias, activation)
        return _Convolve.apply(copied(x), weight, bias, product, first, activation)

    def asked_order(self, x: Tensor | InputRows, block: Block) -> bool | None:
        """The order that the product with A of ``block`` asks for; None: any, or the order is set."""
        product = block.product(self.propagation)
        return asked_order(self.spmm_order, self.linear.weight, product, x.requires_grad)


class _Propagate(torch.autograd.Function):
    """The activation of A Y + b."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor | None, product: BlockProduct, activation: Activation) -> Tensor:
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
    product: BlockProduct, grad: Tensor, output: Tensor | None, scale: float
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
        product: BlockProduct,
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
