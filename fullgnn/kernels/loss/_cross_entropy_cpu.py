"""The compiled cross-entropy of :mod:`fullgnn.kernels.loss.cross_entropy`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.support.aligned import LINE_BYTES, lanes_of
from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled, exp_minus, largest, load, store, times, total, zeros

MAX_CLASSES = 12 * LINE_BYTES // 4  # so that a row fits into registers
MIN_ROWS, MAX_RANGES = 1024, 32  # threads take ranges of rows, whose losses are added in a fixed order
ROWS_OF_A_LOG = 64  # rows per logarithm: a float64 can hold the product of their sums, each at most MAX_CLASSES


def cross_entropy_cpu(logits: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """See :func:`fullgnn.kernels.loss.cross_entropy.cross_entropy`. The number of threads changes no bit of the result.

    Args:
        logits: (n, C) float32, any row stride, 0 < C <= MAX_CLASSES.
        labels: (n,) int64, contiguous.
    """
    num_rows, num_classes = logits.shape
    gradient = logits.new_empty(num_rows, num_classes)
    num_ranges = max(1, min(MAX_RANGES, num_rows // MIN_ROWS))
    losses = [0.0] * num_ranges
    loop = _cross_entropy(num_classes)
    rows, classes, out = logits.numpy(), labels.numpy(), gradient.numpy()

    def compute(task: tuple[int, slice]) -> None:
        index, part = task
        losses[index] = loop(rows[part], classes[part], scale, out[part])

    parallel_for(compute, enumerate(even_slices(num_rows, num_ranges)))
    return torch.tensor(math.fsum(losses) * scale, dtype=logits.dtype), gradient


@functools.cache
def _cross_entropy(num_classes: int) -> Callable[..., Any]:
    lanes = lanes_of(num_classes, LINE_BYTES // 4)
    num_vectors = -(-num_classes // lanes)
    last = (num_classes - lanes) * 4  # where the last vector of a row begins, in bytes

    @compiled(num_classes)
    def cross_entropy(logits, labels, scale, gradient):
        """Write the gradient of some rows, and return their loss without the factor ``scale``."""
        like, factor = zeros(32, lanes, num_vectors), np.float32(scale)
        row_address, gradient_address = logits.ctypes.data, gradient.ctypes.data
        loss, product = 0.0, 1.0  # log(a) + log(b) + ... is computed as log(a b ...)
        for row in range(len(logits)):
            values = load(row_address, last, like)
            top = largest(values)
            exponentials = exp_minus(values, top)
            row_total = total(exponentials, num_classes)
            store(gradient_address, last, times(exponentials, factor / row_total))
            gradient[row, labels[row]] -= factor
            loss += top - logits[row, labels[row]]
            product *= row_total
            if row % ROWS_OF_A_LOG == ROWS_OF_A_LOG - 1:
                loss += math.log(product)
                product = 1.0
            row_address += logits.strides[0]
            gradient_address += gradient.strides[0]
        return loss + math.log(product)

    return cross_entropy
