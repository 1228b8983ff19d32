"""Processes of their own, for what must not disturb the process that measures, or may end with a fault.

Such a process is a new Python, since libraries read their environment variables when they are loaded: it has those of
the moment at which it is started.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_END_S = 3.0


class Child:
    """A process that runs ``serve(pipe, *args)``, with a pipe to this one. It ends with this process at the latest.

    Args:
        serve: a function of a module; its arguments are pickled.
    """

    def __init__(self, serve: Callable[..., object], *args: Any):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *args), daemon=True)
        self._process.start()
        theirs.close()

    def status(self, timeout_s: float | None = None) -> int | None:
        """The exit status, or the negated number of the signal that ended it; None: it runs after ``timeout_s``."""
        self._process.join(timeout_s)
        return self._process.exitcode

    def kill(self) -> None:
        """End the process; and what it has started, if it has made a session of its own."""
        assert self._process.pid is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self.status(_END_S)  # so that what it held of a GPU is free
