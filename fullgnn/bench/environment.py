"""Settings of the process itself, equal for all methods: thread pools and malloc.

They are environment variables that libraries read when the process starts. numba's OpenMP layer sets the threads of
every library in the process to ``NUMBA_NUM_THREADS`` at its first parallel call, so this variable is set beside
``OMP_NUM_THREADS``. glibc's malloc returns large blocks to the system when they are freed, and new ones cost page
faults; ``malloc=tuned`` keeps them.
"""

import logging
import os
import sys
from collections.abc import Mapping

import torch

from fullgnn.bench.config import BenchConfig, run_config
from fullgnn.distributed.launch import environment
from fullgnn.distributed.mesh import num_threads

log = logging.getLogger(__name__)

_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "8000000000", "MALLOC_TRIM_THRESHOLD_": "16000000000"}


def variables(cfg: BenchConfig, local_size: int) -> dict[str, str | None]:
    """Environment variables of each of ``local_size`` processes on this machine; None: not set."""
    threads = str(num_threads(run_config(cfg).runtime, local_size))
    malloc = _MALLOC if cfg.malloc == "tuned" else dict.fromkeys(_MALLOC)
    return {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads, "DGLBACKEND": "pytorch", **malloc}


def restart_unless(wanted: Mapping[str, str | None]) -> None:
    """Replace this process by one with the environment ``wanted``, unless it has that; for the ranks of torchrun."""
    if any(os.environ.get(key) != value for key, value in wanted.items()):
        with environment(wanted):
            os.execv(sys.executable, [sys.executable, "-m", "fullgnn.bench", *sys.argv[1:]])


def in_effect(cfg: BenchConfig, local_size: int) -> dict[str, str | int | None]:
    """The variables of this process and the threads of torch, for the record."""
    keys = (*variables(cfg, local_size), "OMP_WAIT_POLICY")
    return {**{key: os.environ.get(key) for key in keys}, "torch_threads": torch.get_num_threads()}


def check_threads(cfg: BenchConfig, local_size: int) -> None:
    """Log a warning if a library has changed the number of threads: later methods then had another number."""
    wanted = variables(cfg, local_size)["OMP_NUM_THREADS"]
    if str(torch.get_num_threads()) != wanted:
        log.warning("torch has %d threads at the end, not %s: a library changed it", torch.get_num_threads(), wanted)
