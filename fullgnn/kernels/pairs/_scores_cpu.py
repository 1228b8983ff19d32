"""The compiled CPU path of :mod:`fullgnn.kernels.pairs.scores`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import torch
from torch import Tensor

from fullgnn.kernels.support.aligned import LINE_BYTES
from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled

PARALLEL_ELEMENTS = 1 << 16  # with fewer elements, starting work on a thread costs more than it saves


def scores_cpu(left: Tensor, left_index: Tensor, right: Tensor, right_index: Tensor) -> Tensor:
    """See ``pair_scores``."""
    out = left.new_empty(len(left_index))
    arrays = left.detach().numpy(), left_index.numpy(), right.detach().numpy(), right_index.numpy()
    num_parts = torch.get_num_threads() if out.numel() * left.shape[1] >= PARALLEL_ELEMENTS else 1

    def compute(some: slice) -> None:
        _scores(arrays[0], arrays[1][some], arrays[2], arrays[3][some], out.numpy()[some])

    parallel_for(compute, even_slices(len(out), num_parts))
    return out


def gradients_cpu(
    left: Tensor,
    left_index: Tensor,
    right: Tensor,
    right_index: Tensor,
    grad: Tensor,
    grad_left: Tensor,
    grad_right: Tensor,
) -> None:
    """Add the gradients to ``grad_left`` and ``grad_right``, which may be one tensor. Each thread adds some columns of
    all pairs, in their order, so that the number of threads changes no bit."""
    arrays = [tensor.detach().contiguous().numpy() for tensor in (left, left_index, right, right_index, grad)]
    num_columns, per_line = left.shape[1], LINE_BYTES // left.element_size()
    num_parts = min(torch.get_num_threads(), max(1, num_columns // per_line))
    if grad.numel() * num_columns < PARALLEL_ELEMENTS:
        num_parts = 1
    bounds = [num_columns * part // num_parts // per_line * per_line for part in range(num_parts)] + [num_columns]

    def compute(part: int) -> None:
        columns = bounds[part], bounds[part + 1]
        _gradients(*arrays, grad_left.numpy(), grad_right.numpy(), *columns)

    parallel_for(compute, range(num_parts))


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _scores(left, left_index, right, right_index, out):
    for pair in range(len(out)):
        x, y = left[left_index[pair]], right[right_index[pair]]
        total = x.dtype.type(0)
        for column in range(len(x)):
            total += x[column] * y[column]
        out[pair] = total


@compiled()
def _gradients(left, left_index, right, right_index, grad, grad_left, grad_right, first, stop):
    for pair in range(len(grad)):
        i, j, factor = left_index[pair], right_index[pair], grad[pair]
        x, y = left[i, first:stop], right[j, first:stop]
        grad_x, grad_y = grad_left[i, first:stop], grad_right[j, first:stop]
        for column in range(stop - first):
            grad_x[column] += factor * y[column]
        for column in range(stop - first):
            grad_y[column] += factor * x[column]
