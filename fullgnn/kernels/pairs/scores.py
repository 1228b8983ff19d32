"""Inner products of many pairs of rows, differentiable: the scores of a task that finds links.

On a CPU, compiled code reads the rows where they are, and on a GPU a kernel does so in the forward pass. A torch
expression would copy both rows of each pair, in the forward and in the backward pass.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fullgnn.kernels.edges.paths import path_of
from fullgnn.kernels.support.aligned import as_rows
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.pairs import _scores_cpu, _scores_gpu
else:
    _scores_cpu = module_on_use("fullgnn.kernels.pairs._scores_cpu")
    _scores_gpu = module_on_use("fullgnn.kernels.pairs._scores_gpu")


def pair_scores(left: Tensor, left_index: Tensor, right: Tensor | None, right_index: Tensor) -> Tensor:
    """s_k = <left[left_index[k]], right[right_index[k]]>, differentiable.

    The gradients of a row are added in the order of the pairs: neither the number of threads nor the device changes
    which pairs are added.

    Args:
        left: (n, F).
        left_index, right_index: (num_pairs,) int64, on the device of ``left``.
        right: (m, F); None: ``left`` itself, which then gets one gradient.

    Returns:
        (num_pairs,).
    """
    return _PairScores.apply(left, left_index, right, right_index)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, left_index: Tensor, right: Tensor | None, right_index: Tensor) -> Tensor:
        path = path_of(left)
        left = left.contiguous() if path == "compiled" else as_rows(left)
        other = left if right is None else right
        ctx.save_for_backward(left, left_index, right, right_index)
        if path == "compiled":
            return _scores_cpu.scores_cpu(left, left_index, other.contiguous(), right_index)
        if path == "triton":
            return _scores_gpu.scores_gpu(left, left_index, as_rows(other), right_index)
        return torch.einsum("kf,kf->k", left[left_index], other[right_index])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, left_index, right, right_index = ctx.saved_tensors
        other = left if right is None else right
        grad_left = torch.zeros_like(left)
        grad_right = grad_left if right is None else torch.zeros_like(right)
        if path_of(left) == "compiled":
            rows = left.contiguous(), left_index, other.contiguous(), right_index
            _scores_cpu.gradients_cpu(*rows, grad, grad_left, grad_right)
        else:  # index_put_ adds repeated rows in a fixed order
            grad_left.index_put_((left_index,), other[right_index].mul_(grad[:, None]), accumulate=True)
            grad_right.index_put_((right_index,), left[left_index].mul_(grad[:, None]), accumulate=True)
        return grad_left, None, None if right is None else grad_right, None
