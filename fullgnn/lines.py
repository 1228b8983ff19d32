"""Matrices whose rows begin a cache line each: a sparse product, which reads rows at random, touches fewer lines.

A GPU reads memory by sectors of a line: "line" means one of those there.
"""

import torch
from torch import Tensor

LINE_BYTES = 64  # of a CPU
SECTOR_BYTES = 32  # of a GPU


def line_stride(device: torch.device, width: int, dtype: torch.dtype) -> int:
    """Elements from one row of such a matrix to the next."""
    per_line = (LINE_BYTES if device.type == "cpu" else SECTOR_BYTES) // dtype.itemsize
    return -(-width // per_line) * per_line


def as_rows(x: Tensor) -> Tensor:
    """(n, f) ``x`` with the numbers of a row side by side, as compiled loops want them; rows may lie apart."""
    return x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()


def empty_lines(num_rows: int, width: int, like: Tensor) -> Tensor:
    """An uninitialised (num_rows, width) matrix whose rows begin a line each, of the type of ``like``."""
    return like.new_empty(num_rows, line_stride(like.device, width, like.dtype))[:, :width]
