"""Cross-entropy and its gradient in one pass over the logits."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fullgnn.kernels.support import gpu
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.loss import _cross_entropy_cpu, _cross_entropy_gpu
else:
    _cross_entropy_cpu = module_on_use("fullgnn.kernels.loss._cross_entropy_cpu")
    _cross_entropy_gpu = module_on_use("fullgnn.kernels.loss._cross_entropy_gpu")

MIN_ELEMENTS = 1 << 15  # the compiled CPU loop is called for logits of at least this many elements


def cross_entropy(logits: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return ``scale`` times the sum of -log softmax(logits)[label] over the rows, and its gradient, outside autograd.

    Args:
        logits: (n, C).
        labels: (n,) int64 in [0, C).

    Returns:
        the loss, a scalar, and its (n, C) gradient, to be passed to ``logits.backward``; without rows, the loss is 0.
    """
    logits = logits.detach()
    width, dtype = logits.shape[1], logits.dtype
    in_triton = gpu.runs_triton(logits.device) and dtype in (torch.float32, torch.float64)
    if in_triton and 0 < width <= _cross_entropy_gpu.MAX_CLASSES:
        return _cross_entropy_gpu.cross_entropy_gpu(logits, labels, scale)
    compiled = logits.device.type == "cpu" and dtype == torch.float32 and logits.numel() >= MIN_ELEMENTS
    if compiled and width <= _cross_entropy_cpu.MAX_CLASSES:
        return _cross_entropy_cpu.cross_entropy_cpu(logits, labels, scale)
    gradient = torch.log_softmax(logits, dim=1)
    chosen = gradient.gather(1, labels[:, None])
    gradient.exp_().scatter_add_(1, labels[:, None], chosen.new_full((1, 1), -1).expand_as(chosen))
    return chosen.sum(dtype=torch.float64).mul_(-scale).to(logits.dtype), gradient.mul_(scale)
