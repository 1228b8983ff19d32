"""Facts about the machine of a run: hardware, installed versions, cache sizes, load, and memory.

How much memory is left is asked before something is read whose size a file or a key has announced. Memory that is too
little is a user error.
"""

import errno
import logging
import math
import os
import platform
import re
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from fullgnn.errors import DataError, message_of, quoted

log = logging.getLogger(__name__)

ALWAYS = 1 << 24
"""Bytes that are never asked for."""

_GROUP = Path("/sys/fs/cgroup")


def versions(*others: str) -> dict[str, str | None]:
    """Versions of Python, of CUDA, of the packages that a run uses, and of ``others``; None where one is missing."""
    by_name: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in ("fullgnn", "torch", "numpy", "scipy", "pymetis", "networkx", "hydra-core", "numba", *others):
        try:
            by_name[package] = version(package)
        except PackageNotFoundError:
            by_name[package] = None
    return by_name


def hardware(device: torch.device) -> dict[str, Any]:
    """Names of the processor and of the GPU of ``device`` (None on a CPU), and the cores of this process."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {"cpu": cpu, "num_cores": len(os.sched_getaffinity(0)), "gpu": gpu}


def gpu_facts(device: torch.device) -> dict[str, Any]:
    """Name, memory, L2 cache, number of multiprocessors and compute capability of a GPU."""
    known = torch.cuda.get_device_properties(device)
    return {
        "name": known.name,
        "memory_bytes": known.total_memory,
        "l2_bytes": known.L2_cache_size,
        "num_multiprocessors": known.multi_processor_count,
        "capability": f"{known.major}.{known.minor}",
    }


def git_commit() -> str | None:
    """Commit of the checkout that this package runs from, with ``-dirty`` for local changes; None when installed."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def cache_bytes(device: torch.device, cpus: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Bytes of the last cache before the memory of ``device``; None if the system does not report it.

    On a GPU it is the L2; on a CPU it is the largest last-level cache that a core of this process has.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).L2_cache_size
    return max(last_level_caches(cpus).values(), default=None)


def last_level_caches(cpus: Path = Path("/sys/devices/system/cpu")) -> dict[str, int]:
    """Bytes of every last-level cache of this process's cores, keyed by the list of cores that share the cache."""
    caches = {}
    for cpu in os.sched_getaffinity(0):
        levels = [
            (int((index / "level").read_text()), index) for index in (cpus / f"cpu{cpu}" / "cache").glob("index*")
        ]
        if levels:
            _, last = max(levels)
            caches[(last / "shared_cpu_list").read_text()] = _num_bytes((last / "size").read_text().strip())
    return caches


def memory_bytes(device: torch.device) -> int:
    """Bytes of memory that ``device`` has; on a CPU at most what the container of this process may use."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _text(_GROUP / "memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def available_memory(device: torch.device) -> int:
    """Bytes that may still be allocated on ``device``."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return _of_machine()


def free_bytes() -> int:
    """Bytes that this process may still use: the least that the machine, its container and its own limit leave."""
    left = [_of_machine(), _of_container(), _of_limit()]
    return min(max(0, num_bytes) for num_bytes in left)


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


def peak_process_bytes() -> int:
    """Peak resident memory of this process since it started, or since ``forget_peak_process_bytes``, in bytes."""
    peak = _fields(Path("/proc/self/status")).get("VmHWM")  # ru_maxrss would carry over the parent's peak
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if peak is None else peak) * 1024


def forget_peak_process_bytes() -> None:
    """Let ``peak_process_bytes`` count from now on, where the system can do this."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def left_bytes(device: torch.device, num_sharing: int, peak_bytes: int) -> int:
    """Bytes of the ``device`` of a rank that are free even where its tensors take ``peak_bytes``.

    On a GPU this is its memory without what other processes, and all but the allocator of this one, hold now. On a CPU
    it is what the machine, its container and the limit of the process leave now; a process that keeps the memory that
    it frees (``keep_freed_memory``) holds its peak already. Ranks that share the device have equal parts.

    Args:
        num_sharing: ``World.ranks_per_device``.
    """
    if device.type != "cuda":
        return free_bytes() // num_sharing
    free, _ = torch.cuda.mem_get_info(device)
    return free // num_sharing + torch.cuda.memory_reserved(device) - peak_bytes


def warn_if_busy() -> float:
    """Return the load, the mean number of running threads in the last minute; log a warning if it is high.

    A busy core slows down most the methods that give every thread an equal part, as OpenMP does, so that ratios of
    times mislead.
    """
    load = os.getloadavg()[0]
    if load > 0.5 * len(os.sched_getaffinity(0)):
        log.warning("the machine is busy (load %.1f): times and their ratios are not reproducible", load)
    return load


def _num_bytes(text: str) -> int:
    """Convert a size such as ``32768K``, as the Linux kernel writes it, to bytes."""
    number, unit = re.fullmatch(r"(\d+)([KMG]?)", text).groups()  # type: ignore[union-attr]
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def _of_machine() -> int:
    available = _fields(Path("/proc/meminfo")).get("MemAvailable")
    return 1 << 62 if available is None else available * 1024


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
