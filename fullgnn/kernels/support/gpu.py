"""Tells where Triton kernels can run. Where no GPU is used, this module does not import Triton."""

import functools
import importlib.util
import logging
import os
import re

import torch
from torch import Tensor

from fullgnn.kernels.support.aligned import zero_padded

log = logging.getLogger(__name__)

MIN_TRITON = (3, 6)
"""The oldest Triton that compiles all kernels for compute capability 8.0, 9.0 and 10.0. Torch 2.10 brings it."""

INTERPRETED = False
"""Tests set it to run kernels on a CPU, in Triton's interpreter, which TRITON_INTERPRET=1 selects."""

AS_ON_GPU = False
"""Tests set it, beside ``INTERPRETED``: a CPU takes the way of a GPU where loops are compiled for CPUs."""


def runs_host_loops(device: torch.device) -> bool:
    """Whether loops that are compiled for CPUs compute on ``device``; where not, kernels and operations of torch do."""
    return device.type == "cpu" and not AS_ON_GPU


def runs_triton(device: torch.device) -> bool:
    """Whether Triton kernels can run on ``device``: it is a GPU, and there is a Triton for them."""
    return (device.type == "cuda" or (INTERPRETED and device.type == "cpu")) and has_triton()


def is_capturing(device: torch.device) -> bool:
    """Whether launches on the current stream of ``device`` are being captured as a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def interpreting() -> bool:
    """Whether Triton interprets kernels instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def vector_unit(x: Tensor, *numbers: int) -> int:
    """The unit, in elements of ``x``, of which all ``numbers`` (strides, widths) are multiples: 16 bytes, or 1 element.

    The caller passes such numbers to a kernel divided by the unit, and the kernel multiplies them by the unit, a
    compile-time constant. So the compiler sees that it may load and store 16 bytes at once; on its own it detects only
    arguments that are multiples of 16.
    """
    unit = 16 // x.element_size()
    return 1 if any(number % unit for number in numbers) else unit


def row_unit(*matrices: Tensor) -> int:
    """The ``vector_unit`` for kernels that also read the padding behind the last column, whatever the padding holds.

    The result is the number of elements in 16 bytes if, in each matrix, every row begins at a multiple of 16 bytes and
    its end, rounded up to such a multiple, lies before the next row and inside the memory of the matrix; else 1.

    Args:
        matrices: (n, f) of one dtype with contiguous rows, n > 0; f may differ.
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


def in_vectors(x: Tensor) -> Tensor:
    """(n, f) ``x`` with contiguous rows, or a copy of it, whose rows may be read in whole vectors: see ``row_unit``."""
    return x if row_unit(x) > 1 else zero_padded(len(x), x.shape[1], like=x).copy_(x)


@functools.cache
def has_triton() -> bool:
    """Whether a Triton is installed that compiles the kernels. An older one is named in a warning."""
    version = triton_version()
    if version and tuple(map(int, re.findall(r"\d+", version)[:2])) < MIN_TRITON:
        log.warning(
            "Triton %s is too old for the kernels of fullgnn, so operations of torch replace them, which may be slower:"
            " install torch 2.10 or later with its Triton",
            version,
        )
        return False
    return bool(version)


def triton_version() -> str:
    """The version of Triton; empty if it is not installed."""
    if importlib.util.find_spec("triton") is None:
        return ""
    import triton  # imported here, since only GPUs need it

    return str(getattr(triton, "__version__", ""))
