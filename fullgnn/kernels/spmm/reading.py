"""The constants by which a Triton kernel reads a dense matrix: columns in pieces, rows in vectors, offsets in 32 or 64
bits; and the numbers that it may add one after the other."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.errors import UnsupportedError
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import empty_aligned

FULL_PIECE = 128  # columns; the rest of a width is cut into smaller pieces
MIN_PIECE = 8  # columns; in float32, a sector of 32 bytes
FEW_LANES = 64  # columns; a program of more has so few lanes that a piece of 8 is less than a vector per thread
CHAIN = 16  # float32 numbers that are added one after the other at most: the error of a sum grows with their number
VECTOR_BYTES = 16  # bytes of one load of one thread


def check_supported(kernel: str, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse devices and dtypes that the Triton kernel ``kernel`` does not support."""
    if device.type == "cuda" and not gpu.has_triton():
        raise UnsupportedError(
            f"kernel={kernel} needs Triton 3.6 or later, which torch 2.10 brings: install it, or choose kernel=torch"
        )
    if not gpu.runs_triton(device) or dtype not in (torch.float32, torch.float64):
        raise UnsupportedError(
            f"kernel={kernel} multiplies float32 and float64 on a GPU, not {dtype} on {device}: choose kernel=auto"
        )


def rounded(x: Tensor) -> Tensor:
    """A copy of ``x`` in bfloat16."""
    like = x.new_empty(0, dtype=torch.bfloat16)
    return empty_aligned(len(x), x.shape[1], like=like).copy_(x)


def pieces(width: int, smallest: int) -> tuple[int, int, int]:
    """Up to three powers of two, at least ``smallest``, that cover ``width`` < 128 columns closely; 0: no piece."""
    while True:
        width = -(-width // smallest) * smallest
        if width.bit_count() <= 3:
            break
        smallest *= 2
    powers = [1 << bit for bit in reversed(range(8)) if width >> bit & 1]
    return tuple((*powers, 0, 0)[:3])  # type: ignore[return-value]


@dataclass(frozen=True)
class Columns:
    """Columns that programs of one launch multiply: ``count`` stretches of the same pieces."""

    first: int
    count: int
    pieces: tuple[int, int, int]

    @property
    def total(self) -> int:
        """Columns of one program."""
        return sum(self.pieces)

    @property
    def end(self) -> int:
        return self.first + self.count * self.total


def split_columns(width: int) -> list[Columns]:
    """Cut ``width`` into as many pieces of ``FULL_PIECE`` columns as possible, and the rest into smaller pieces."""
    full, rest = divmod(width, FULL_PIECE)
    cuts = [Columns(0, full, (FULL_PIECE, 0, 0))] if full else []
    smallest = 2 * MIN_PIECE if rest > FEW_LANES else MIN_PIECE
    return cuts + ([Columns(full * FULL_PIECE, 1, pieces(rest, smallest))] if rest else [])


@dataclass(frozen=True)
class Reading:
    """How a kernel may read the rows of X: in whole vectors where rows are aligned, past the width if memory allows.

    The compiler loads 16 bytes at once only where it sees that addresses and masks are multiples of 16 bytes. It knows
    nothing about a number that is an argument, and ``tl.multiple_of`` of an argument has no effect. So a kernel gets
    ``stride_units`` and ``column_units`` and multiplies each by the constant ``aligned``.
    """

    columns: int  # columns of every row that may be read: at least the width, up to the whole stride
    stride: int  # row stride in elements
    aligned: int  # number of elements that divides ``stride`` and ``columns``, at most a vector

    @classmethod
    def of(cls, x: Tensor) -> "Reading":
        width, stride = x.shape[1], x.stride(0)
        vector = VECTOR_BYTES // x.element_size()
        # Elements from the last row on: the memory may end with it, and a single or expanded row may have any stride.
        available = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset() - (len(x) - 1) * stride
        columns = max(width, min(stride, available) // vector * vector)
        return cls(columns, stride, math.gcd(vector, stride, columns))

    @property
    def column_units(self) -> int:
        return self.columns // self.aligned

    @property
    def stride_units(self) -> int:
        return self.stride // self.aligned


def wide(*tensors: Tensor) -> bool:
    """Whether offsets into any of the matrices pass 2^31."""
    return any(len(tensor) * tensor.stride(0) + FULL_PIECE >= 2**31 for tensor in tensors)
