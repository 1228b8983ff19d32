"""Products with powers of a matrix of the graph, without weights in between."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.schemes.block import Block


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
        z = (z if keep == 1 else z.mul_(keep)).add_(block.at_targets(x), alpha=restart)
    return z


def propagate_powers(columns: Sequence[Tensor], blocks: Sequence[Block], propagation: Propagation) -> Tensor:
    """The products A^0 Y_0, A^1 Y_1, ..., A^(K-1) Y_(K-1) side by side, from the K matrices in ``columns``.

    As in Horner's scheme, the last matrix is multiplied first, then the last two side by side, and so on: there are
    K - 1 products, and the product number i has the columns of the last i matrices.

    Args:
        columns: each (num_sources, F_k).
        blocks: K - 1 of them; only the last one may have fewer targets.

    Returns:
        (num_own_targets of the last block, sum of F_k).
    """
    *others, z = columns
    for y, block in zip(reversed(others), blocks, strict=True):
        z = torch.cat([block.at_targets(y), block.product(propagation).spmm(z)], dim=1)
    return z
