"""Products with powers of a matrix of the graph, without weights in between."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.kernels.dense.scale_add import scale_and_add_
from fullgnn.schemes.block import Block, Multiplication
from fullgnn.schemes.row_exchange import linear_map


def propagate(x: Tensor, blocks: Sequence[Block], propagation: Propagation) -> Tensor:
    """A^K X with the K ``blocks``, differentiable: (num_sources, F) to (num_own_targets of the last block, F)."""
    for block in blocks:
        x = block.product(propagation).spmm(x)
    return x


def propagate_with_restart(
    x: Tensor, blocks: Sequence[Block], propagation: Propagation, keep: float, restart: float
) -> Tensor:
    """Z_K of Z_0 = X and Z_k = ``keep`` A Z_(k-1) + ``restart`` X with the K ``blocks``, differentiable.

    With restart = a and keep = 1 - a, these are K steps of the personalised PageRank of Gasteiger et al. (2019). With
    keep = restart = 1, Z_K is the sum of the powers A^0 X to A^K X.

    Args:
        x: (num_sources, F).

    Returns:
        (num_own_targets of the last block, F).
    """
    z = x
    for block in blocks:
        z = block.product(propagation).spmm(z)  # fresh memory, which is written in place
        x = block.at_targets(x)
        z = (z if keep == 1 else z.mul_(keep)).add_(x, alpha=restart)
    return z


def mean_of_powers(x: Tensor, blocks: Sequence[Block], propagation: Propagation) -> Tensor:
    """The mean of A^0 X, A^1 X, ..., A^K X with the K ``blocks``, differentiable.

    Z_0 = X, and Z_k = A Z_(k-1) + X; the result is Z_K / (K + 1). The gradient is the same recursion with A^T.

    Args:
        x: (num_sources, F).
        blocks: each has every source as a target.

    Returns:
        (num_sources, F).
    """
    products = [block.product(propagation) for block in blocks]
    return linear_map(
        lambda x: _restarted([product.multiply for product in products], x),
        lambda grad: _restarted([product.multiply_t for product in reversed(products)], grad),
        x,
    )


def _restarted(products: Sequence[Multiplication], x: Tensor) -> Tensor:
    """Z_K / (K + 1). Where A = diag(r) P diag(c), the vectors Y_k = c Z_k are multiplied, so that a pass which adds X
    scales as well."""
    scale, factor = products[0].input_scale, 1 / (len(products) + 1)
    if scale is None:
        z = x
        for multiply in products[:-1]:
            z = multiply(z).add_(x)  # fresh memory, which is written in place
        return scale_and_add_(products[-1](z), None, x, factor)
    start = x * scale[:, None]
    y = start
    for multiply in products[:-1]:
        y = scale_and_add_(multiply(y, scaled=True), scale, start)
    return scale_and_add_(products[-1](y, scaled=True), None, x, factor)


def propagate_powers(columns: Sequence[Tensor], blocks: Sequence[Block], propagation: Propagation) -> Tensor:
    """The products A^0 Y_0, A^1 Y_1, ..., A^(K-1) Y_(K-1) side by side, from the K matrices in ``columns``.

    As in Horner's scheme, the last matrix is multiplied first, then the last two side by side, and so on: there are
    K - 1 products, and the product number i has the columns of the last i matrices.

    Args:
        columns: each (num_sources, F_k).
        blocks: K - 1 of them; the sources of one are the targets of the one before.

    Returns:
        (num_own_targets of the last block, sum of F_k).
    """
    *others, z = columns
    for block in blocks:
        others = [block.at_targets(y) for y in others]
        z = torch.cat([others.pop(), block.product(propagation).spmm(z)], dim=1)
    return z
