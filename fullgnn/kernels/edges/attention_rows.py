"""The rows of the targets in the backward pass of attention: those that it reads, and the gradients that it adds to."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fullgnn.kernels.support.gpu import in_vectors


@dataclass(frozen=True, eq=False)
class AttentionRows:
    """The targets' part of the backward pass, the same for all stages; shapes are local, tensors contiguous."""

    of_targets: Tensor  # (n, K) logits; in dynamic attention (n, K * D) rows
    maximum: Tensor  # (n, K) of all edges of the target, see ``SoftmaxState``
    total: Tensor  # (n, K), the same
    grad: Tensor  # (n, K * D) gradient of the attention's result
    dot: Tensor  # (n, K) dot products of ``grad`` and the attention's result, head by head
    grad_of_targets: Tensor  # to which each stage adds its gradient of ``of_targets``
    grad_vector: Tensor | None = None  # (n, K * D) to which each stage of a dynamic attention adds the targets' parts
    # of the gradient of the vector; None: the attention is static

    @property
    def dynamic(self) -> bool:
        """Which of the two attentions of ``attention.py`` it is."""
        return self.grad_vector is not None

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """What the stages add to."""
        return (self.grad_of_targets,) if self.grad_vector is None else (self.grad_of_targets, self.grad_vector)

    @cached_property
    def table(self) -> Tensor:
        """(n, 4 * K): logits, maximum, 1 / total and dot side by side, so that an edge reads them together; in dynamic
        attention (n, 3 * K), without logits."""
        logits = [] if self.dynamic else [self.of_targets]
        return torch.cat([*logits, self.maximum, self.total.reciprocal(), self.dot], dim=1)

    @cached_property
    def grad_lines(self) -> Tensor:
        """``grad`` in rows that may be read in whole vectors, as the kernels of a GPU do."""
        return in_vectors(self.grad)

    @cached_property
    def target_lines(self) -> Tensor:
        """``of_targets`` for the kernels of a GPU, rows in such rows."""
        return in_vectors(self.of_targets) if self.dynamic else self.of_targets

    def vector_gradient(self) -> Tensor:
        """(K, D) gradient of the vector, once all stages of a dynamic attention have been added. The sum has the same
        bits for any number of threads."""
        assert self.grad_vector is not None
        return self.grad_vector.sum(0).view(self.total.shape[1], -1)
