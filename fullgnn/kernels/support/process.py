"""Keeps freed memory in the process instead of returning it to the system."""

import ctypes
import sys
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # parameters of glibc's mallopt


def keep_freed_memory() -> bool:
    """Keep freed memory in this process, and return whether that is possible: only on Linux with glibc.

    Every epoch frees and allocates the same tensors. By default glibc returns large ones to the system, which then
    provides zeroed pages one page fault at a time: an epoch on a CPU can spend a third of its time on these faults.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 1 << 26}
    return all([mallopt(parameter, value) for parameter, value in settings.items()])


def return_freed_memory() -> None:
    """Return memory that is kept and not used to the system, where that is possible."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
