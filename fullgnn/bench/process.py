"""Processes: the settings that are equal for all methods, a worker that answers requests, a program with a time limit.

The settings are environment variables that libraries read when a process starts: thread pools and malloc. numba's
OpenMP layer sets the threads of every library in the process to ``NUMBA_NUM_THREADS`` at its first parallel call, so
this variable is set beside ``OMP_NUM_THREADS``. glibc's malloc returns large blocks to the system when they are freed,
and new ones cost page faults; ``malloc=tuned`` keeps them.

What must not disturb the process that measures, or may end with a fault, is in a process of its own.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from fullgnn.bench.config import BenchConfig, run_config
from fullgnn.bench.harness import Budget, attempt
from fullgnn.distributed.failure import REASON_FILE
from fullgnn.distributed.launch import environment
from fullgnn.distributed.mesh import num_threads
from fullgnn.distributed.worker import Worker, answer_calls, send
from fullgnn.errors import UnsupportedError
from fullgnn.startup import LAUNCHER_PID, STORE_FILE
from fullgnn.telemetry.log import setup_logging

log = logging.getLogger(__name__)

Enter = Callable[..., AbstractContextManager[Any]]
"""Makes an object, which is there inside a ``with`` block."""

_LOOK_S = 0.5
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "8000000000", "MALLOC_TRIM_THRESHOLD_": "16000000000"}
_OF_RANK = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", STORE_FILE, REASON_FILE, LAUNCHER_PID,
            "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", *_MALLOC}  # fmt: skip
"""Variables that a rank of a benchmark has, and that a command which it starts must not take for its own."""


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


def worker_with(wanted: Mapping[str, str | None], make: Enter, *args: Any) -> Worker:
    """A new Python process, which libraries see with the environment ``wanted``, with an object.

    Args:
        make: a function of a module; in the new process, ``make(*args)`` is entered and gives the object.

    Returns:
        the process; ``call(method, ...)`` calls a method of the class of the object there.

    Raises:
        UnsupportedError: the object could not be made.
        WorkerLost: the process ended.
    """
    with environment(wanted):
        worker = Worker.started(_serve, make, args)
        worker.answer()
    return worker


def _serve(connection: Connection, make: Enter, args: tuple[Any, ...]) -> None:
    setup_logging(0)
    with ExitStack() as entered:
        target, _, reason = attempt(lambda: entered.enter_context(make(*args)))
        send(connection, (None, UnsupportedError(reason) if reason else None, ""))
        answer_calls(connection, target)


def finished(
    command: list[str],
    seconds: float,
    grace_s: float = 0.0,
    folder: Path | None = None,
    look: Callable[[], object] = lambda: None,
    variables: Mapping[str, str] | None = None,
) -> tuple[str, str, int]:
    """stdout, stderr and status of a command, which is ended with all that it started if it takes longer.

    Args:
        grace_s: seconds between an interrupt and the end, in which the command may write what it has.
        folder: the working directory; None: that of this process.
        look: called about twice a second while the command runs.
        variables: of its environment, beside those of this process that are not of a rank.

    Raises:
        TimeoutExpired: it took longer.
    """
    budget, pipe = Budget(seconds), subprocess.PIPE
    env = {key: value for key, value in os.environ.items() if key not in _OF_RANK} | dict(variables or {})
    # A job in the background of a shell ignores interrupts, and so would the command.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL) if grace_s else None
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=folder, env=env, start_new_session=True, preexec_fn=heed
    ) as process:
        try:
            while True:
                try:
                    output, errors = process.communicate(timeout=min(_LOOK_S, budget.left))
                    return output, errors, process.returncode
                except subprocess.TimeoutExpired:
                    look()
                    if not budget.left:
                        os.killpg(process.pid, signal.SIGINT)
                        with suppress(subprocess.TimeoutExpired):
                            process.communicate(timeout=grace_s)
                        raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def run_or_raise(command: list[str], seconds: float, look: Callable[[], object] = lambda: None) -> None:
    """Run a command of fullgnn for at most ``seconds``; it ends with this process at the latest.

    Raises:
        RuntimeError: its status is not 0; the message has the last words that it wrote.
        TimeoutExpired: it took longer.
    """
    variables = {LAUNCHER_PID: str(os.getpid())}
    output, errors, status = finished(command, seconds, look=look, variables=variables)
    if status:
        raise RuntimeError(f"status {status}: {' '.join((errors or output).split())[-300:]}")
