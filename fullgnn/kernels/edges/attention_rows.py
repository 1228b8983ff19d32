"""What the backward pass of attention reads of each target."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fullgnn.kernels.support.aligned import as_rows
from fullgnn.kernels.support.gpu import in_vectors


@dataclass(frozen=True, eq=False)
class AttentionRows:
    """The targets' part of the backward pass, the same for all stages; shapes are local, tensors contiguous."""

    logit_target: Tensor  # (n, K)
    maximum: Tensor  # (n, K) of all edges of the target, see ``SoftmaxState``
    total: Tensor  # (n, K), the same
    grad: Tensor  # (n, K * D) gradient of the attention's result
    dot: Tensor  # (n, K) dot products of ``grad`` and the attention's result, head by head
    grad_logit_target: Tensor  # (n, K) to which each stage adds its gradient of ``logit_target``

    @cached_property
    def table(self) -> Tensor:
        """(n, 4 * K): logit_target, maximum, 1 / total and dot side by side, so that an edge reads them together."""
        return torch.cat([self.logit_target, self.maximum, self.total.reciprocal(), self.dot], dim=1)

    @cached_property
    def grad_lines(self) -> Tensor:
        """``grad`` in rows that may be read in whole vectors, as the kernels of a GPU do."""
        return in_vectors(as_rows(self.grad))
