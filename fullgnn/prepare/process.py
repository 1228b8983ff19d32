"""A process of its own for rank 0's work on the whole graph, whose memory is free again when the process has ended.

The process has the graph that it has loaded last, so that a planner may look at it before it is prepared. Where a fork
is possible, it is forked before the rank joins its job: after that the rank has threads. Otherwise a new Python is
started when there is something to do.
"""

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

from fullgnn.distributed.launch import can_fork, forkable, use_default_handlers
from fullgnn.distributed.presence import Process, wait_for_message
from fullgnn.errors import FullGNNError, UnsupportedError
from fullgnn.startup import LAUNCHER_PID, end_with_launcher
from fullgnn.telemetry.log import setup_logging

T = TypeVar("T")

log = logging.getLogger(__name__)


class PreparationWorker:
    """Calls functions, which look at the whole graph, in this process."""

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Return ``function(*args)``. In another process, all of them are pickled."""
        return function(*args)

    def close(self) -> None:
        """Let the process end, if it is another one, so that its memory is free. May be called repeatedly."""


class _OwnProcess(PreparationWorker):
    """Calls functions in another process of this machine."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._wait: Callable[[], int | None] = lambda: None
        self._process: Process | None = None
        if can_fork():
            self._fork()

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Return ``function(*args)``, or raise its user error.

        Raises:
            UnsupportedError: the process has been killed, or stopped for ``timeout_s`` seconds.
        """
        try:
            if self._connection is None:
                self._start()
            assert self._connection is not None
            self._connection.send_bytes(pickle.dumps((function, args)))
            self._await_answer(self._connection)
            kind, value = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise UnsupportedError(_how_it_ended(self._wait() or 0)) from error
        if kind == "bug":
            bug, where = value
            raise bug from _Remote(where)
        if kind == "error":
            raise value
        return value

    def close(self) -> None:
        """See ``PreparationWorker.close``."""
        if self._connection is not None:
            self._connection.close()
            if self._process is not None and self._process.state() == "stopped":
                os.kill(self._process.pid, signal.SIGKILL)  # it would not notice that it is to end
            self._wait()
            self._connection = None

    def _await_answer(self, connection: Connection) -> None:
        """Wait until the process has answered or ended.

        Raises:
            UnsupportedError: it has been stopped for ``timeout_s`` seconds.
        """
        assert self._process is not None
        if not wait_for_message(connection, self._process, self._timeout_s):
            os.kill(self._process.pid, signal.SIGKILL)
            raise UnsupportedError(
                f"the process that prepares the graph (process {self._process.pid}) has been stopped for"
                f" runtime.timeout_s={self._timeout_s:g} s: start again"
            )

    def _fork(self) -> None:
        here, there = multiprocessing.Pipe()

        def serve_there() -> None:
            here.close()
            _serve(there)

        process = forkable(serve_there, daemon=True)
        process.start()
        there.close()

        def wait() -> int | None:
            process.join()
            return process.exitcode

        assert process.pid is not None
        self._connection, self._wait, self._process = here, wait, Process.of(process.pid)

    def _start(self) -> None:
        here, there = socket.socketpair()
        with here, there:
            command = [sys.executable, "-m", "fullgnn.prepare.process", str(there.fileno())]
            process = subprocess.Popen(command, pass_fds=[there.fileno()])
            self._connection, self._wait = Connection(here.detach()), process.wait
            self._process = Process.of(process.pid)
        self._connection.send_bytes(pickle.dumps((_find_modules, (sys.path,))))
        self._connection.recv_bytes()


def _how_it_ended(status: int) -> str:
    """What a user is told of a process that has ended with this exit ``status`` before it answered."""
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    cure = "start again; if it ends so again, report its last lines as a fault of fullgnn or of a library"
    if status == -signal.SIGKILL:
        cure = (
            "if memory was too little, prepare the graph where there is more of it (python -m fullgnn.prepare), in a"
            " runtime.cache_dir that this machine reads"
        )
    return f"the process that prepares the graph {how}: {cure}"


class _Remote(Exception):
    """Where an error was raised in the other process."""

    def __str__(self) -> str:
        return f"in the process that prepares the graph\n{self.args[0]}"


@contextmanager
def own_process(timeout_s: float) -> Iterator[PreparationWorker]:
    """A process for the work on the whole graph, which ends with the ``with`` block.

    Args:
        timeout_s: seconds for which the process may be stopped, before it is given up.
    """
    process = _OwnProcess(timeout_s)
    try:
        yield process
    finally:
        process.close()


def own_process_of_rank0(timeout_s: float) -> AbstractContextManager[PreparationWorker]:
    """``own_process`` on rank 0 of several ranks; otherwise the work is done in this process, which is about to join
    the job that its environment describes."""
    several = os.environ.get("RANK") == "0" and int(os.environ.get("WORLD_SIZE", 1)) > 1
    return own_process(timeout_s) if several else nullcontext(PreparationWorker())


def _find_modules(path: list[str]) -> None:
    """Import from where the parent does: a dataset may be the user's."""
    sys.path[:] = path


def _serve(connection: Connection) -> None:
    """Do what the parent asks for, until it closes the ``connection``."""
    use_default_handlers()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ[LAUNCHER_PID] = str(os.getppid())
    end_with_launcher()
    setup_logging(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    while True:
        try:
            function, args = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer = "value", function(*args)
        except FullGNNError as error:
            answer = "error", error
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__))
            answer = "bug", (_picklable(error), where)
        connection.send_bytes(pickle.dumps(answer))


def _picklable(error: Exception) -> Exception:
    """``error``, or one with its text if it cannot be sent."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:  # a class of a user's module may raise anything here
        return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
