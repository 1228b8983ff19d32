"""Scale the rows of a matrix and add another matrix, in one pass."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fullgnn.kernels.support import gpu
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.dense import _scale_add_cpu
else:
    _scale_add_cpu = module_on_use("fullgnn.kernels.dense._scale_add_cpu")


def scale_and_add_(z: Tensor, scale: Tensor | None, x: Tensor, factor: float = 1.0) -> Tensor:
    """Z becomes ``factor`` (diag(scale) Z + X), in place.

    Args:
        z, x: (n, F).
        scale: (n,); None: all 1.
    """
    if gpu.runs_host_loops(z.device) and z.dtype in (torch.float32, torch.float64) and z.is_contiguous():
        _scale_add_cpu.scale_and_add_cpu(z, scale, x.contiguous(), factor)
        return z
    if scale is not None:
        z.mul_(scale[:, None])
    z.add_(x)
    return z if factor == 1 else z.mul_(factor)
