"""Scale the rows of a matrix and add another matrix, in one pass."""

import torch
from torch import Tensor

from fullgnn.kernels.support import gpu


def scale_and_add_(z: Tensor, scale: Tensor | None, x: Tensor, factor: float = 1.0) -> Tensor:
    """Z becomes ``factor`` (diag(scale) Z + X), in place.

    Args:
        z, x: (n, F).
        scale: (n,); None: all 1.
    """
    if gpu.runs_host_loops(z.device) and z.dtype in (torch.float32, torch.float64) and z.is_contiguous():
        from fullgnn.kernels.dense._scale_add_cpu import scale_and_add_cpu

        scale_and_add_cpu(z, scale, x.contiguous(), factor)
        return z
    if scale is not None:
        z.mul_(scale[:, None])
    z.add_(x)
    return z if factor == 1 else z.mul_(factor)
