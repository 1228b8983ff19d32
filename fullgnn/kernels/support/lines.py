"""Matrices whose rows begin a cache line each: a sparse product, which reads rows at random, touches fewer lines.

A GPU reads memory by sectors of a line: "line" means one of those there.
"""

import torch
from torch import Tensor

LINE_BYTES = 64  # of a CPU
SECTOR_BYTES = 32  # of a GPU

PADDED_DEVICES = ("cuda",)
"""Types of devices on which every matrix that sparse products read, or that is kept for all epochs, has such rows:
their kernels load 16 bytes at a time where the rows allow it. Elsewhere only what is made in such rows for nothing has
them."""


def line_stride(device: torch.device, width: int, dtype: torch.dtype) -> int:
    """Elements from one row of such a matrix to the next."""
    per_line = (LINE_BYTES if device.type == "cpu" else SECTOR_BYTES) // dtype.itemsize
    return -(-width // per_line) * per_line


def pads_rows(device: torch.device) -> bool:
    """Whether rows that arrive or stay on ``device`` are laid out in lines, see ``PADDED_DEVICES``."""
    return device.type in PADDED_DEVICES


def as_rows(x: Tensor) -> Tensor:
    """(n, f) ``x`` with the numbers of a row side by side, as compiled loops want them; rows may lie apart."""
    return x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()


def empty_lines(num_rows: int, width: int, like: Tensor) -> Tensor:
    """An uninitialised (num_rows, width) matrix whose rows begin a line each, of the type of ``like``."""
    return like.new_empty(num_rows, line_stride(like.device, width, like.dtype))[:, :width]


def padded_lines(num_rows: int, width: int, like: Tensor) -> Tensor:
    """``empty_lines`` with zeros behind every row, so that whole lines may be read."""
    lines = empty_lines(num_rows, width, like)
    whole_lines(lines)[:, width:].zero_()
    return lines


def whole_lines(lines: Tensor) -> Tensor:
    """(n, stride) contiguous memory of an (n, f) matrix that ``empty_lines`` made: its rows and what is behind them."""
    stride = line_stride(lines.device, lines.shape[1], lines.dtype)
    return lines.as_strided((len(lines), stride), (stride, 1))


def begins_lines(x: Tensor) -> bool:
    """Whether each row of (n, f) ``x`` begins at a multiple of a line of its device, and is contiguous."""
    per_line = line_stride(x.device, 1, x.dtype)
    contiguous = x.shape[1] <= 1 or x.stride(1) == 1
    return contiguous and x.stride(0) % per_line == 0 and x.storage_offset() % per_line == 0


def to_lines(x: Tensor, device: torch.device) -> Tensor:
    """(n, f) ``x`` on ``device``, copied to lines where ``pads_rows`` and it is not in lines already."""
    if not pads_rows(device) or (x.device == device and begins_lines(x)):
        return x.to(device)
    return padded_lines(len(x), x.shape[1], like=x.new_empty(0, device=device)).copy_(x)


def select_rows(x: Tensor, index: Tensor) -> Tensor:
    """The rows ``index`` of (n, f) ``x``, (num,) int64; in lines where ``pads_rows``."""
    if not pads_rows(x.device):
        return x.index_select(0, index)
    return torch.index_select(x, 0, index, out=padded_lines(len(index), x.shape[1], like=x))
