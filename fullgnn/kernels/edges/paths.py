"""Which implementation processes the edges of a block."""

from typing import Literal

import torch
from torch import Tensor

from fullgnn.kernels.support import gpu


def path_of(x: Tensor) -> Literal["triton", "compiled", "torch"]:
    """Triton on a GPU, compiled loops on a CPU, else torch operations, by the device and dtype of ``x``."""
    if x.dtype in (torch.float32, torch.float64):
        if gpu.runs_triton(x.device):
            return "triton"
        if gpu.runs_host_loops(x.device):
            return "compiled"
    return "torch"
