"""Call a function in a process of its own, and find out how much memory it takes there."""

import multiprocessing
import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullgnn.distributed.launch import environment
from fullgnn.errors import UnsupportedError, reason_of
from fullgnn.telemetry.log import setup_logging

_POLL_S = 0.005


@dataclass(frozen=True)
class Fresh:
    """What a call in a process of its own has returned."""

    value: Any
    before_bytes: int  # what the libraries take before the call
    peak_bytes: int

    @property
    def own_bytes(self) -> int:
        """What the call itself takes."""
        return self.peak_bytes - self.before_bytes


def call_fresh(function: Callable[..., Any], *args: Any, threads: int = 1, limit_bytes: int | None = None) -> Fresh:
    """Return ``function(*args)`` of a new Python, and its peak memory.

    Memory is what the process has written itself. Pages of files that it has mapped do not count: the system takes them
    away when it is short of memory.

    Args:
        function: of a module.
        threads: that it may use.
        limit_bytes: of memory that it may write; None: there is no limit.

    Raises:
        UnsupportedError: the function failed, or its process ended.
    """
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, function, args, limit_bytes), daemon=True)
    with environment({name: str(threads) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")}):
        process.start()
    theirs.close()
    try:
        found, reason = pipe.recv()
    except EOFError:
        process.join()
        found, reason = None, f"its process ended with status {process.exitcode}"
    process.join()
    if found is None:
        raise UnsupportedError(f"{function.__name__}: {reason}")
    return found


def _serve(pipe: Any, function: Callable[..., Any], args: tuple[Any, ...], limit_bytes: int | None) -> None:
    setup_logging(0)
    if limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    try:
        before = peak = _written_bytes()
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(_POLL_S):
                peak = max(peak, _written_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            value = function(*args)
            peak = max(peak, _written_bytes())
        finally:
            done.set()
            watcher.join()
        pipe.send((Fresh(value, before, peak), None))
    except Exception as error:
        pipe.send((None, reason_of(error)))


def _written_bytes() -> int:
    """Bytes of memory that belong to no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
