"""Add gradients that have come home side by side to those of the rows that were read.

Several readers may have read the same row. The sums are a product with a sparse matrix, which has a row for each own
row and a column for each gradient, in the order of the ranks that send them. The kernel of this product adds in a fixed
order, so that a repeated run has the same bits, and a launch serves any number of readers.
"""

from typing import Any

import torch
from torch import Tensor

from fullgnn.kernels.spmm import AutoKernel, LocalCSR


class GradientSum:
    """The sums of one exchange.

    Args:
        index: (num_gradients,) int32, the LOCAL row of each gradient, reader by reader in rank order.
        num_own: rows that this rank holds.
    """

    def __init__(self, index: Tensor, num_own: int):
        rows, order = torch.sort(index, stable=True)
        starts = torch.arange(num_own + 1, dtype=torch.int32, device=index.device)
        indptr = torch.searchsorted(rows, starts, out_int32=True)
        self._matrix = LocalCSR(indptr, order.to(torch.int32), None, num_own, len(index))
        self._kernel = AutoKernel()
        self._kernel.choose_by_rule()  # nothing is won by timing a matrix with a few entries a row
        self._blocks: dict[torch.dtype, Any] = {}

    def add(self, gradients: Tensor, total: Tensor) -> None:
        """Add (num_gradients, F) ``gradients`` to (num_own, F) ``total``, of the same dtype, in place."""
        if not gradients.numel():
            return
        if total.dtype not in self._blocks:
            self._blocks[total.dtype] = self._kernel.prepare(self._matrix, total.dtype)
        self._kernel.spmm(self._blocks[total.dtype], gradients, total, accumulate=True)

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        formats = [tensor for block in self._blocks.values() for tensor in self._kernel.tensors(block)]
        return [self._matrix.indptr, self._matrix.indices, *formats]
