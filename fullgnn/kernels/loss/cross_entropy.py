"""Cross-entropy and its gradient in one pass over the logits."""

import torch
from torch import Tensor

from fullgnn.kernels.support import gpu

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
    if gpu.runs_triton(logits.device) and logits.dtype in (torch.float32, torch.float64):
        from fullgnn.kernels.loss import _cross_entropy_gpu as _loss_gpu

        if 0 < logits.shape[1] <= _loss_gpu.MAX_CLASSES:
            return _loss_gpu.cross_entropy_gpu(logits, labels, scale)
    if logits.device.type == "cpu" and logits.dtype == torch.float32 and logits.numel() >= MIN_ELEMENTS:
        # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
        from fullgnn.kernels.loss._cross_entropy_cpu import MAX_CLASSES, cross_entropy_cpu

        if logits.shape[1] <= MAX_CLASSES:
            return cross_entropy_cpu(logits, labels, scale)
    gradient = torch.log_softmax(logits, dim=1)
    chosen = gradient.gather(1, labels[:, None])
    gradient.exp_().scatter_add_(1, labels[:, None], chosen.new_full((1, 1), -1).expand_as(chosen))
    return chosen.sum(dtype=torch.float64).mul_(-scale).to(logits.dtype), gradient.mul_(scale)
