"""Matrices whose rows begin at memory lines, so that a sparse product, which reads rows at random, reads fewer lines.

A line is a cache line on a CPU. A GPU reads memory in sectors of a cache line, so on a GPU a line is a sector. Rows are
padded up to the next line. Loops on a CPU cut rows into vectors and slices that fit into the registers.
"""

import functools
import platform
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

LINE_BYTES = 64  # cache line of a CPU
SECTOR_BYTES = 32  # sector of a GPU's cache line
MAX_ROW_LINES = 8
"""The most cache lines of a row that a loop keeps in registers: all registers of AVX2, a quarter of AVX-512's."""

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


@functools.cache
def registers() -> tuple[int, int]:
    """Number of vector registers of the processor for which numba compiles, and the bytes of each."""
    from numba.core.registry import cpu_target  # imported here, since numba must see the launcher's thread counts

    if platform.machine() in ("aarch64", "arm64"):
        return 32, 16
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return (32, 64) if "+avx512f" in features else (16, 32)


def row_lines() -> int:
    """Cache lines of a row that a loop should keep in registers as a running sum; wider rows are cut into slices.

    A sum fills at most half of the registers: the other half holds what is added to it. That is 4 lines with AVX2 or
    NEON. With AVX-512 it is MAX_ROW_LINES, so that 128 float32 columns need one pass. Slices change no sum: each column
    is summed in the same order.
    """
    count, register_bytes = registers()
    return min(MAX_ROW_LINES, count * register_bytes // (2 * LINE_BYTES))


def lanes_of(width: int, most: int) -> int:
    """The largest power of two within ``width`` and ``most``: lanes of the vectors of a row of ``width`` columns."""
    return min(most, 1 << (width.bit_length() - 1))


class Slices(NamedTuple):
    """How the columns of a matrix are cut into slices of whole vectors."""

    lanes: int  # of a vector
    num_vectors: int  # of a slice
    firsts: list[int]  # first column of each slice; the last one may overlap the one before it
    width: int  # columns of a slice

    def offsets(self, size: int) -> tuple[int, int, int]:
        """The number of slices, and the offsets of the last slice in a row and of the last vector in a slice, in bytes,
        if a number has ``size`` bytes."""
        return len(self.firsts), self.firsts[-1] * size if self.firsts else 0, (self.width - self.lanes) * size


def slices_of(width: int, size: int, most: int) -> Slices:
    """Cut ``width`` columns of ``size`` bytes into as few slices of at most ``most`` vectors as possible."""
    lanes = lanes_of(max(width, 1), registers()[1] // size)
    num_vectors = max(1, -(-width // lanes))
    num_slices = -(-num_vectors // most)
    num_vectors = -(-num_vectors // num_slices)
    columns = min(width, num_vectors * lanes)
    firsts = [min(k * columns, width - columns) for k in range(num_slices)] if width else []
    return Slices(lanes, num_vectors, firsts, columns)
