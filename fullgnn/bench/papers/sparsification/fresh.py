"""Call a function in a process of its own, and find out how much memory it takes there."""

import re
import resource
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullgnn.distributed.launch import environment
from fullgnn.distributed.worker import Worker, answer_calls
from fullgnn.errors import UnsupportedError, reason_of
from fullgnn.telemetry.log import setup_logging

_POLL_S = 0.005
_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class FreshCall:
    """What a call in a process of its own has returned."""

    value: Any
    before_bytes: int  # what the libraries take before the call
    peak_bytes: int

    @property
    def own_bytes(self) -> int:
        """What the call itself takes."""
        return self.peak_bytes - self.before_bytes


def call_fresh(function: Callable[..., Any], *args: Any, threads: int = 1, limit_bytes: int | None = None) -> FreshCall:
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
    with environment(dict.fromkeys(_THREADS, str(threads))):
        worker = Worker.started(answer_calls)
    try:
        return worker.call(_watched, function, args, limit_bytes)
    except Exception as error:
        raise UnsupportedError(f"{function.__name__}: {reason_of(error)}") from error
    finally:
        worker.close()


def _watched(function: Callable[..., Any], args: tuple[Any, ...], limit_bytes: int | None) -> FreshCall:
    setup_logging(0)
    if limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    before, done = _written_bytes(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        peak = threads.submit(_peak_bytes, done)
        try:
            value = function(*args)
        finally:
            done.set()
        return FreshCall(value, before, max(before, peak.result()))


def _peak_bytes(done: threading.Event) -> int:
    """The most memory that the process has written, every few milliseconds until ``done``, and then."""
    peak = 0
    while not done.wait(_POLL_S):
        peak = max(peak, _written_bytes())
    return max(peak, _written_bytes())


def _written_bytes() -> int:
    """Bytes of memory that belong to no file."""
    found = re.search(r"RssAnon:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1]) if found else 0
