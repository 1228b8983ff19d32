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


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
