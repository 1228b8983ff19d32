"""What the backward pass of dynamic attention reads of each target."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class DynamicRows:
    """The targets' part of the backward pass, the same for all stages; shapes are local, tensors contiguous."""

    x_target: Tensor  # (n, K * D)
    maximum: Tensor  # (n, K) of all edges of the target, see ``SoftmaxState``
    total: Tensor  # (n, K), the same
    grad: Tensor  # (n, K * D) gradient of the attention's result
    dot: Tensor  # (n, K) dot products of ``grad`` and the attention's result, head by head
    grad_x_target: Tensor  # (n, K * D) to which each stage adds its gradient of ``x_target``
    grad_vector: Tensor  # (n, K * D) to which each stage adds the targets' parts of the gradient of the vector

    @cached_property
    def table(self) -> Tensor:
        """(n, 3 * K): maximum, 1 / total and dot side by side, so that an edge reads them together."""
        return torch.cat([self.maximum, self.total.reciprocal(), self.dot], dim=1)

    def vector_gradient(self) -> Tensor:
        """(K, D) gradient of the vector, once all stages have been added. The sum has the same bits for any number of
        threads."""
        return self.grad_vector.sum(0).view(self.total.shape[1], -1)
