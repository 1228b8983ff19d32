"""The compiled CPU path of :mod:`fullgnn.kernels.dense.scale_add`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled

PARALLEL_ELEMENTS = 1 << 16  # with fewer elements, starting work on a thread costs more than it saves


def scale_and_add_cpu(z: Tensor, scale: Tensor | None, x: Tensor, factor: float) -> None:
    """See ``scale_and_add_``; the matrices are contiguous."""
    out, other, number = z.numpy(), x.detach().numpy(), z.new_empty(0).numpy().dtype.type
    scales = np.empty(0, number) if scale is None else scale.numpy()
    num_parts = 2 * torch.get_num_threads() if z.numel() >= PARALLEL_ELEMENTS else 1

    def compute(rows: slice) -> None:
        _scale_and_add(out[rows], scales[rows] if len(scales) else scales, other[rows], number(factor))

    parallel_for(compute, even_slices(len(z), num_parts))


@compiled()
def _scale_and_add(z, scale, x, factor):
    for row in range(len(z)):
        z_row, x_row = z[row], x[row]
        by = scale[row] if len(scale) else z.dtype.type(1)
        for column in range(len(z_row)):
            z_row[column] = (by * z_row[column] + x_row[column]) * factor
