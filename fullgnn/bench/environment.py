"""What the process itself must be like, so that all methods meet the same machine: thread pools and malloc.

All of it is read from the environment as a process starts. numba's OpenMP layer sets the threads of every library in
the process to ``NUMBA_NUM_THREADS`` at its first parallel call, so it is set beside ``OMP_NUM_THREADS``. glibc's
malloc returns large blocks to the system as they are freed and page-faults them anew; ``malloc=tuned`` keeps them.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from fullgnn.bench.config import BenchConfig, run_config
from fullgnn.distributed.mesh import num_threads

log = logging.getLogger(__name__)

_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "8000000000", "MALLOC_TRIM_THRESHOLD_": "16000000000"}


def variables(cfg: BenchConfig, local_size: int) -> dict[str, str | None]:
    """The environment of one of ``local_size`` processes; None: not set."""
    threads = str(num_threads(run_config(cfg).runtime, local_size))
    malloc = _MALLOC if cfg.malloc == "tuned" else dict.fromkeys(_MALLOC)
    return {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads, "DGLBACKEND": "pytorch", **malloc}


@contextmanager
def environment(wanted: Mapping[str, str | None]) -> Iterator[None]:
    """``os.environ`` with ``wanted``, for the processes started inside."""
    before = {key: os.environ.get(key) for key in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


def restart_unless(wanted: Mapping[str, str | None]) -> None:
    """Replace this process by one with the environment ``wanted``, as torchrun's ranks need; return if it is there."""
    if any(os.environ.get(key) != value for key, value in wanted.items()):
        _set(wanted)
        os.execv(sys.executable, [sys.executable, "-m", "fullgnn.bench", *sys.argv[1:]])


def in_effect(cfg: BenchConfig, local_size: int) -> dict[str, str | int | None]:
    """For the record, at the end of a run: the variables, and the threads of torch."""
    return {
        **{key: os.environ.get(key) for key in (*variables(cfg, local_size), "OMP_WAIT_POLICY")},
        "torch_threads": torch.get_num_threads(),
    }


def load_before() -> float:
    """Mean number of running threads on the machine in the minute before; with a line if it is busy.

    A busy core hurts the methods most that give every thread an equal share, as OpenMP does: ratios mislead then.
    """
    load = os.getloadavg()[0]
    if load > 0.5 * len(os.sched_getaffinity(0)):
        log.warning("the machine is busy (load %.1f): neither times nor ratios will repeat", load)
    return load


def check_threads(cfg: BenchConfig, local_size: int) -> None:
    """Say so if a library has changed the number of threads on the way: later methods then had others."""
    wanted = variables(cfg, local_size)["OMP_NUM_THREADS"]
    if str(torch.get_num_threads()) != wanted:
        log.warning("torch has %d threads at the end, not %s: a library changed it", torch.get_num_threads(), wanted)


def available_memory(device: torch.device) -> int:
    """Bytes that may still be taken on ``device``."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def _set(variables: Mapping[str, str | None]) -> None:
    for key, value in variables.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
