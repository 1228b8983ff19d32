"""Other processes: a worker that answers requests, and a program with a time limit.

What must not disturb the process that measures, or may end with a fault, is in a process of its own.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fullgnn.bench.cases import Budget
from fullgnn.bench.harness import attempt
from fullgnn.distributed.failure import REASON_FILE
from fullgnn.distributed.worker import Worker, answer_calls, send
from fullgnn.errors import UnsupportedError
from fullgnn.startup import LAUNCHER_PID, STORE_FILE
from fullgnn.telemetry.log import setup_logging

_LOOK_S = 0.5
_OF_RANK = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", STORE_FILE, REASON_FILE, LAUNCHER_PID,
            "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}  # fmt: skip
"""Variables that a rank of a benchmark has, and that a command which it starts must not take for its own."""


def worker_with(make: Callable[..., AbstractContextManager[Any]], *args: Any) -> Worker:
    """A new Python process, which libraries see with the environment variables of this moment, with an object.

    Args:
        make: a function of a module; in the new process, ``make(*args)`` is entered and gives the object.

    Returns:
        the process; ``call(methodcaller(name, ...))`` calls a method of the object there.

    Raises:
        UnsupportedError: the object could not be made.
        WorkerLost: the process ended.
    """
    worker = Worker.started(_serve, make, args)
    worker.answer()
    return worker


def _serve(connection: Connection, make: Callable[..., AbstractContextManager[Any]], args: tuple[Any, ...]) -> None:
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
    budget = Budget(seconds)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
        env={key: value for key, value in os.environ.items() if key not in _OF_RANK} | dict(variables or {}),
        # A job in the background of a shell ignores interrupts, and so would the command.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL) if grace_s else None,
    )
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
        process.wait()


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
