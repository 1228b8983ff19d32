"""How much memory is left, asked before something is read whose size a file or a key has announced."""

import errno
import math
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fullgnn.errors import DataError, message_of, quoted

ALWAYS = 1 << 24
"""Bytes that are never asked for."""

_GROUP = Path("/sys/fs/cgroup")


def free_bytes() -> int:
    """Bytes that this process may still use: the least that the machine, its container and its own limit leave."""
    left = [_of_machine(), _of_container(), _of_limit()]
    return min(max(0, one) for one in left)


def check_fits(num_bytes: int, what: str, cure: str) -> None:
    """Refuse what would need more memory than there is.

    Args:
        what: the start of the message, such as ``graph.npz: array 'labels'``.

    Raises:
        DataError: one line with both numbers of bytes.
    """
    if num_bytes > ALWAYS and num_bytes > (free := free_bytes()):
        raise DataError(f"{what} needs {num_bytes} bytes of memory, and {free} are free: {cure}")


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Turn an error of the block that says that memory was too little into a user error in one line.

    Args:
        what: the start of the message, such as ``dataset cora``.

    Raises:
        DataError: memory was too little.
    """
    try:
        yield
    except Exception as error:
        if (shortage := too_little(error, what)) is not None:
            raise shortage from error
        raise


def too_little(error: BaseException, what: str) -> DataError | None:
    """The user error that stands for ``error``, if that says that memory was too little; None: it says something else.

    It has the bytes that were wanted, where the error says them, and those left.
    """
    message = message_of(error)
    if isinstance(error, torch.OutOfMemoryError):  # of a GPU; its first sentences have the bytes
        return DataError(
            f"{what} does not fit into the memory of the GPU ({quoted(message)}): take more GPUs, a smaller model, or"
            " less data; python -m fullgnn.plan shows what a rank needs"
        )
    of_torch = isinstance(error, RuntimeError) and "can't allocate memory" in message
    of_system = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if not (isinstance(error, MemoryError) or of_torch or of_system):
        return None
    shape: Any = getattr(error, "shape", None)  # of an array of numpy
    dtype: Any = getattr(error, "dtype", None)
    wanted = re.search(r"tried to allocate (\d+) bytes", message)
    if shape is not None and dtype is not None:
        reason = f"{math.prod(shape) * dtype.itemsize} more bytes were wanted"
    else:
        reason = f"{wanted[1]} more bytes were wanted" if wanted else quoted(message)
    return DataError(
        f"{what} does not fit into memory ({reason}{', and ' if reason else ''}{free_bytes()} bytes are free): take a"
        " machine with more memory, a smaller model, or less data"
    )


def _of_machine() -> int:
    found = _fields(Path("/proc/meminfo")).get("MemAvailable")
    return 1 << 62 if found is None else found * 1024


def _of_container() -> int:
    """Bytes below the limit of the control group. Its cached files do not count: they make place."""
    limit, used = _text(_GROUP / "memory.max"), _text(_GROUP / "memory.current")
    if not (limit.isdigit() and used.isdigit()):
        return 1 << 62
    cached = _fields(_GROUP / "memory.stat").get("file", 0)
    return int(limit) - int(used) + cached


def _of_limit() -> int:
    """Bytes below ``ulimit -v``."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 62
    used = _fields(Path("/proc/self/status")).get("VmSize", 0) * 1024
    return limit - used


def _fields(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number a line."""
    rows: list[Any] = [line.replace(":", " ").split() for line in _text(path).splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # not Linux, or no container
        return ""
