"""Keeps freed memory in the process instead of returning it to the system, and gives it back."""

import ctypes
import sys
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4  # parameters of glibc's mallopt
_KEEP = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 1 << 26}
_USUAL = {_M_MMAP_MAX: 1 << 16, _M_MMAP_THRESHOLD: 1 << 25, _M_TRIM_THRESHOLD: 1 << 26, _M_TOP_PAD: 1 << 17}
"""glibc's own values. It raises the two thresholds to these by itself, as large arrays are freed."""


def keep_freed_memory() -> bool:
    """Keep freed memory in this process, and return whether that is possible: only on Linux with glibc.

    Every epoch frees and allocates the same tensors. By default glibc returns large ones to the system, which then
    provides zeroed pages one page fault at a time: an epoch on a CPU can spend a third of its time on these faults.
    """
    return _set(_KEEP)


def give_back_freed_memory() -> None:
    """Undo ``keep_freed_memory``, and return the memory that was kept to the system."""
    _set(_USUAL)
    return_freed_memory()


def _set(parameters: dict[int, int]) -> bool:
    """Set ``parameters`` of glibc's allocator, and return whether that is possible."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return all([mallopt(parameter, value) for parameter, value in parameters.items()])


def return_freed_memory() -> None:
    """Return memory that is kept and not used to the system, where that is possible."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
