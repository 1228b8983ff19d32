"""Matrices whose rows begin a cache line each: a sparse product, which reads rows at random, touches fewer lines."""

import torch
from torch import Tensor

LINE_BYTES = 64


def line_stride(device: torch.device, width: int, dtype: torch.dtype) -> int:
    """Elements from one row of such a matrix to the next; on a GPU, ``width``."""
    per_line = LINE_BYTES // dtype.itemsize if device.type == "cpu" else 1
    return -(-width // per_line) * per_line


def as_rows(x: Tensor) -> Tensor:
    """(n, f) ``x`` with the numbers of a row side by side, as compiled loops want them; rows may lie apart."""
    return x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()


def empty_lines(num_rows: int, width: int, like: Tensor) -> Tensor:
    """An uninitialised (num_rows, width) matrix whose rows begin a line each, of the type of ``like``."""
    return like.new_empty(num_rows, line_stride(like.device, width, like.dtype))[:, :width]
