"""Facts about the machine of a run: hardware, installed versions, cache and memory sizes, load."""

import logging
import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger(__name__)


def versions(*others: str) -> dict[str, str | None]:
    """Versions of Python, of CUDA, of the packages that a run uses, and of ``others``; None where one is missing."""
    found: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in ("fullgnn", "torch", "numpy", "scipy", "pymetis", "networkx", "hydra-core", "numba", *others):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


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
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else ""
    return min(total, int(text)) if text.isdigit() else total


def available_memory(device: torch.device) -> int:
    """Bytes that may still be allocated on ``device``."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


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
