"""Where Triton's kernels serve. Whoever asks has imported no Triton; the modules ``_*_gpu.py`` do."""

import functools
import importlib.util
import os

import torch
from torch import Tensor

INTERPRETED = False  # tests set it: Triton's interpreter, which TRITON_INTERPRET=1 puts in place, then serves on a CPU


def suits_triton(x: Tensor) -> bool:
    """Whether kernels in Triton can work on ``x``."""
    return serves(x.device)


def serves(device: torch.device) -> bool:
    """Whether kernels in Triton can work on ``device``: a GPU, where Triton is installed."""
    return (device.type == "cuda" or (INTERPRETED and device.type == "cpu")) and has_triton()


def interpreting() -> bool:
    """Whether Triton interprets kernels instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def vector_unit(x: Tensor, *numbers: int) -> int:
    """Elements of ``x`` in 16 bytes where all these strides and widths are multiples of that, else 1.

    A kernel is given such numbers divided by their unit, a constant, and multiplies by it: so the compiler, which by
    itself notices only multiples of 16, sees that it may move 16 bytes at once.
    """
    unit = 16 // x.element_size()
    return 1 if any(number % unit for number in numbers) else unit


def row_unit(*matrices: Tensor) -> int:
    """``vector_unit`` for reading rows up to the padding behind their last column, whatever that holds.

    Elements in 16 bytes where, in each matrix, every row begins at a multiple of 16 bytes and, rounded up to one, ends
    before the next row and inside the memory of the matrix; else 1.

    Args:
        matrices: (n, f) of one type, with the numbers of a row side by side, n > 0; f may differ.
    """
    unit = 16 // matrices[0].element_size()
    for x in matrices:
        num_rows, stride = len(x), x.stride(0)
        columns = -(-x.shape[1] // unit) * unit
        end = x.storage_offset() + (num_rows - 1) * stride + columns
        fits = (columns == x.shape[1] or stride >= columns) and end * x.element_size() <= x.untyped_storage().nbytes()
        if stride % unit or x.data_ptr() % 16 or not fits:
            return 1
    return unit


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
