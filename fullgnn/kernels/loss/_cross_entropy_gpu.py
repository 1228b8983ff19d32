"""The cross-entropy of :mod:`fullgnn.kernels.loss.cross_entropy` on a GPU. Importing this module imports Triton."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.support.aligned import as_rows, empty_aligned
from fullgnn.kernels.support.gpu import row_unit, vector_unit

MAX_CLASSES = 256  # so that a row fits into registers
ELEMENTS = 2048  # elements of a program's tile


def cross_entropy_gpu(logits: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """See :func:`fullgnn.kernels.loss.cross_entropy.cross_entropy`.

    The losses of the rows are added in float64, in blocks that depend on the shape alone: every run gives the same
    bits, and the error does not grow with the number of rows. The rows of the gradient begin at lines, so that the
    backward pass of the last layer, which reads them next, loads 16 bytes at once even if the number of classes is not
    a multiple of 4.

    Args:
        logits: (n, C) float32 or float64, any row stride, 0 < C <= MAX_CLASSES.
        labels: (n,) int64.
    """
    logits = as_rows(logits)
    num_rows, num_classes = logits.shape
    gradient = empty_aligned(num_rows, num_classes, like=logits)
    columns = max(2, triton.next_power_of_2(num_classes))
    rows = ELEMENTS // columns
    losses = logits.new_zeros(triton.cdiv(num_rows, rows), dtype=torch.float64)
    if num_rows:
        unit, gradient_unit = row_unit(logits), vector_unit(gradient, gradient.stride(0))
        strides = (logits.stride(0) // unit, gradient.stride(0) // gradient_unit)
        sizes = (num_rows, num_classes, triton.cdiv(num_classes, unit))
        arguments = (logits, labels.contiguous(), gradient, losses, *strides, scale, *sizes, unit, gradient_unit)
        _cross_entropy[(len(losses),)](*arguments, rows, columns)
    return losses.sum().mul_(scale).to(logits.dtype), gradient


@triton.jit
def _cross_entropy(
    logits,
    labels,
    gradient,
    losses,
    logits_stride,
    gradient_stride,
    factor: tl.float64,
    num_rows: tl.int64,
    num_classes,
    logits_columns,
    UNIT: tl.constexpr,
    GRADIENT_UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write the gradient of some rows, and their loss without ``factor``.

    The strides and ``logits_columns``, the number of columns that may be read, are in units, see ``vector_unit``. Whole
    lines of the gradient are written, with zeros in the padding.
    """
    logits_stride *= UNIT
    logits_columns *= UNIT
    gradient_stride *= GRADIENT_UNIT
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)[None, :]
    exists = (row < num_rows)[:, None]
    values = tl.load(logits + row[:, None] * logits_stride + column, mask=exists & (column < logits_columns), other=0.0)
    values = tl.where(column < num_classes, values, float("-inf"))
    label = tl.load(labels + row, mask=row < num_rows, other=0)
    chosen = column == label[:, None]
    values -= tl.max(values, 1)[:, None]
    exponentials = tl.exp(values)
    total = tl.sum(exponentials, 1)
    softmax = exponentials / total[:, None]
    difference = tl.where(chosen, softmax - 1, softmax) * tl.full([1, 1], factor, softmax.dtype)
    tl.store(gradient + row[:, None] * gradient_stride + column, difference, mask=exists & (column < gradient_stride))
    loss = tl.log(total) - tl.sum(tl.where(chosen, values, 0.0), 1)
    tl.store(losses + tl.program_id(0), tl.sum(tl.where(row < num_rows, loss, 0.0).to(tl.float64), 0))
