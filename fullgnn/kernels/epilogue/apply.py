"""Applies an epilogue after a product whose kernel could not fuse it."""

import torch
from torch import Tensor

from fullgnn.kernels.dropout.philox import drop_
from fullgnn.kernels.epilogue.epilogue import Epilogue
from fullgnn.kernels.support import gpu


def apply_epilogue_(y: Tensor, epilogue: Epilogue) -> Tensor:
    """Apply ``epilogue`` to (n, F) ``y`` in place: on a GPU in one pass, elsewhere as separate operations."""
    if gpu.runs_triton(y.device) and y.dtype in (torch.float32, torch.float64) and not epilogue.is_empty:
        from fullgnn.kernels.epilogue._epilogue_gpu import apply_gpu

        return apply_gpu(y, epilogue)
    if epilogue.scale is not None:
        y.mul_(epilogue.scale[:, None])
    if epilogue.bias is not None:
        y.add_(epilogue.bias)
    if epilogue.relu:
        y.relu_()
    return y if epilogue.dropout is None else drop_(y, epilogue.dropout)
