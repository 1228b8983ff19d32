"""What a process does with memory that it frees."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # parameters of glibc's mallopt


def keep_freed_memory() -> bool:
    """Let freed memory stay with this process; whether that is possible here: on Linux with glibc.

    Every epoch frees and allocates the same tensors. By default glibc gives large ones back to the system, which then
    hands out zeroed pages one fault at a time: an epoch on a CPU can spend a third of its time on that.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 1 << 26}
    return all([mallopt(parameter, value) for parameter, value in settings.items()])
