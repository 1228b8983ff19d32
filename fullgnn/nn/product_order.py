"""The order of the two products in A X W: the one with A first, or the one with W.

The product with A takes most of the time and all of the communication, so A should multiply the narrower matrix. With
the (f, g) weights W and the gradient G of the result, the matrices that A or A^T multiplies have these widths:

                       forward     gradient of W        gradient of X
    A (X W)            g           A^T G first: g       then (A^T G) W^T: 0 more
    (A X) W            f           (A X)^T G: 0         A^T (G W^T): f, or (A^T G) W^T: g

``spmm_order`` chooses the order: ``width`` takes the one with the least sum of forward and backward widths, unless the
product itself asks for an order; ``transform`` takes A (X W), as the code of Miao et al. 2023 does; ``propagate`` takes
(A X) W, as CAGNET does.
"""

import torch

from fullgnn.nn.contract import contract_of
from fullgnn.schemes.block import BlockProduct

WIDTH = "width"
SPMM_ORDERS = (WIDTH, "transform", "propagate")


def propagates_first(
    spmm_order: str, weight: torch.Tensor, asked: bool | None = None, backward: tuple[int, int] = (0, 0)
) -> bool:
    """Whether (A X) W is computed, and not A (X W).

    Args:
        spmm_order: one of ``SPMM_ORDERS``.
        weight: (f, g), W.
        asked: see ``asked_order``.
        backward: the columns that A^T multiplies in the backward pass of (A X) W, and in that of A (X W). They count
            only where a gradient is computed.
    """
    if spmm_order != WIDTH:
        return spmm_order == "propagate"
    if asked is not None:
        return asked
    (f, g), (propagated, transformed) = weight.shape, backward if torch.is_grad_enabled() else (0, 0)
    return f + propagated < g + transformed


def asked_order(
    spmm_order: str, weight: torch.Tensor, product: BlockProduct, needs_input_gradient: bool
) -> bool | None:
    """Which order ``product`` asks for, see ``BlockProduct.propagates_first``; None: any, or ``spmm_order`` is set."""
    f, g = weight.shape
    return product.propagates_first(f, g, needs_input_gradient) if spmm_order == WIDTH else None


def multiplies_gradient_first(spmm_order: str, weight: torch.Tensor, asked: bool | None = None) -> bool:
    """Whether the gradient of X in (A X) W is A^T (G W^T), and not (A^T G) W^T.

    Args:
        spmm_order, weight, asked: see ``propagates_first``.
    """
    f, g = weight.shape
    return bool(asked) or f == g or (spmm_order == WIDTH and f < g)


def set_spmm_order(model: torch.nn.Module, spmm_order: str) -> None:
    """Set ``spmm_order``, one of ``SPMM_ORDERS``, of every module of ``model`` that orders its products."""
    for module in model.modules():
        if contract_of(module).orders_products:
            module.spmm_order = spmm_order  # type: ignore[assignment]
