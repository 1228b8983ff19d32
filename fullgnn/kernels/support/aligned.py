"""Matrices whose rows begin at memory lines, so that a sparse product, which reads rows at random, reads fewer lines.

A line is a cache line on a CPU. A GPU reads memory in sectors of a cache line, so on a GPU a line is a sector. Rows are
padded up to the next line.
"""

import numpy as np
import torch
from torch import Tensor

LINE_BYTES = 64  # cache line of a CPU
SECTOR_BYTES = 32  # sector of a GPU's cache line

PADDED_DEVICES = ("cuda",)
"""Types of devices on which every matrix that sparse products read, or that is kept for all epochs, has rows that begin
at lines, since the kernels load 16 bytes at a time from such rows. On other devices a matrix has such rows only where
writing them costs nothing."""


def aligned_stride(device: torch.device, width: int, dtype: torch.dtype) -> int:
    """Row stride, in elements, of a matrix of ``width`` columns whose rows begin at lines."""
    per_line = (LINE_BYTES if device.type == "cpu" else SECTOR_BYTES) // dtype.itemsize
    return -(-width // per_line) * per_line


def pads_rows(device: torch.device) -> bool:
    """Whether the rows of matrices on ``device`` begin at lines, see ``PADDED_DEVICES``."""
    return device.type in PADDED_DEVICES


def as_rows(x: Tensor) -> Tensor:
    """(n, f) ``x`` with contiguous rows, as compiled loops require; the row stride may exceed f."""
    return x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()


def memory_of(matrix: Tensor | None) -> tuple[int, int]:
    """Address of the first row of an (n, f) matrix with contiguous rows, and bytes from one row to the next, as
    compiled loops take it; zeros for None."""
    if matrix is None:
        return 0, 0
    assert matrix.shape[1] <= 1 or matrix.stride(1) == 1, matrix.stride()
    return matrix.data_ptr(), matrix.stride(0) * matrix.element_size()


def empty_aligned(num_rows: int, width: int, like: Tensor) -> Tensor:
    """An uninitialised (num_rows, width) matrix whose rows begin at lines, with dtype and device of ``like``."""
    return like.new_empty(num_rows, aligned_stride(like.device, width, like.dtype))[:, :width]


def fresh_rows(num_rows: int, num_columns: int, dtype: torch.dtype) -> Tensor:
    """(num_rows, num_columns) uninitialised, contiguous, on the CPU, beginning at a cache line.

    NumPy, unlike torch, asks the system for huge pages, with which fresh memory comes several times as fast.
    """
    num_bytes = num_rows * num_columns * dtype.itemsize
    memory = np.empty(num_bytes + LINE_BYTES, np.uint8)
    memory = memory[-memory.ctypes.data % LINE_BYTES :][:num_bytes]
    return torch.from_numpy(memory).view(dtype).view(num_rows, num_columns)


def zero_padded(num_rows: int, width: int, like: Tensor) -> Tensor:
    """``empty_aligned``, with zeros in the padding behind every row, so that whole lines may be read."""
    matrix = empty_aligned(num_rows, width, like)
    with_padding(matrix)[:, width:].zero_()
    return matrix


def with_padding(lines: Tensor) -> Tensor:
    """(n, stride) contiguous view of an (n, f) matrix from ``empty_aligned``: its rows together with their padding."""
    stride = aligned_stride(lines.device, lines.shape[1], lines.dtype)
    return lines.as_strided((len(lines), stride), (stride, 1))


def is_aligned(x: Tensor) -> bool:
    """Whether each row of (n, f) ``x`` is contiguous and begins at a line of its device."""
    per_line = aligned_stride(x.device, 1, x.dtype)
    contiguous = x.shape[1] <= 1 or x.stride(1) == 1
    return contiguous and x.stride(0) % per_line == 0 and x.storage_offset() % per_line == 0


def to_aligned(x: Tensor, device: torch.device) -> Tensor:
    """(n, f) ``x`` on ``device``; if ``pads_rows``, its rows begin at lines. ``x`` is copied only if necessary."""
    if not pads_rows(device) or (x.device == device and is_aligned(x)):
        return x.to(device)
    return zero_padded(len(x), x.shape[1], like=x.new_empty(0, device=device)).copy_(x)


def like_rows(x: Tensor) -> Tensor:
    """An uninitialised matrix with the shape, dtype, device and row stride of ``x``, a result of ``to_aligned``."""
    return zero_padded(len(x), x.shape[1], like=x) if pads_rows(x.device) else torch.empty_like(x)


def select_rows(x: Tensor, index: Tensor) -> Tensor:
    """Copy the rows ``index``, (num,) int64, of (n, f) ``x``; if ``pads_rows``, the rows of the copy begin at lines."""
    if not pads_rows(x.device):
        return x.index_select(0, index)
    return torch.index_select(x, 0, index, out=zero_padded(len(index), x.shape[1], like=x))
