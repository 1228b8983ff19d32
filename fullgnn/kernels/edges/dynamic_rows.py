"""What the backward pass of dynamic attention reads of each target."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fullgnn.kernels.support.gpu import in_vectors


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

    @cached_property
    def grad_lines(self) -> Tensor:
        """``grad`` in rows that may be read in whole vectors, as the kernels of a GPU do."""
        return in_vectors(self.grad)

    @cached_property
    def target_lines(self) -> Tensor:
        """``x_target`` in such rows."""
        return in_vectors(self.x_target)

    def vector_gradient(self) -> Tensor:
        """(K, D) gradient of the vector, once all stages have been added. The sum has the same bits for any number of
        threads."""
        return self.grad_vector.sum(0).view(self.total.shape[1], -1)
