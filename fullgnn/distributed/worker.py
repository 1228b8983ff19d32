"""Processes of this machine that work for this one: requests go to them through a pipe, and answers come back.

A worker is a fork of this process, which has imported everything already, or a new Python, which reads environment
variables as they are now and shares no thread with this process. It runs one function, ``serve(connection, *args)``,
and ends with it, or with this process, however that ends. ``answer_calls`` is such a function: it answers one call
after the other. Others send what they like.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn
from weakref import WeakSet

from fullgnn.distributed.presence import Process, wait_for_message
from fullgnn.errors import FullGNNError
from fullgnn.startup import LAUNCHER_PID, end_with_launcher

Serve = Callable[..., object]
"""What a worker does: a function of its connection and of arguments. It ends when the connection is closed."""

_ends: WeakSet[Connection] = WeakSet()
"""This process's ends of the pipes to its workers. A fork closes them: while it held one, a worker would not see that
this process has ended."""


class WorkerLost(FullGNNError):
    """A worker has ended, or has been stopped for too long, before it sent what was awaited.

    Args:
        status: its exit status, or the negated number of the signal that killed it; None: it has been stopped.
    """

    def __init__(self, status: int | None):
        how = "was stopped" if status is None else f"ended with status {status}"
        super().__init__(f"a process that worked for this one {how}: start again")
        self.status = status


class Worker:
    """A process that works for this one.

    Args:
        connection: this process's end of the pipe.
        pid: the process id of the worker, a child of this process.
        wait: waits so many seconds, or (None) until the worker has ended; the exit status, or None while it runs.
        timeout_s: seconds for which the worker may be stopped, before it is given up.
    """

    def __init__(
        self, connection: Connection, pid: int, wait: Callable[[float | None], int | None], timeout_s: float = inf
    ):
        self.connection, self.process, self.wait, self._timeout_s = connection, Process.of(pid), wait, timeout_s
        _ends.add(connection)

    @classmethod
    def forked(cls, serve: Serve, *args: Any, timeout_s: float = inf) -> "Worker":
        """A fork of this process that runs ``serve(connection, *args)``. It has the memory of this process, and none of
        its threads."""
        here, there = Pipe()
        parent = os.getpid()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # otherwise both processes would write what is buffered
        pid = os.fork()
        if pid == 0:
            here.close()
            _run_fork(serve, there, args, parent)
        there.close()
        return cls(here, pid, _Fork(pid).wait, timeout_s)

    @classmethod
    def started(cls, serve: Serve, *args: Any, timeout_s: float = inf) -> "Worker":
        """A new Python that runs ``serve(connection, *args)``: ``serve`` is a function of a module, and ``args`` are
        pickled."""
        here, there = socket.socketpair()
        with here, there:
            command = [sys.executable, "-m", "fullgnn.distributed.worker", str(there.fileno()), str(os.getpid())]
            process = subprocess.Popen(command, pass_fds=[there.fileno()])
            worker = cls(Connection(here.detach()), process.pid, partial(_wait_for, process), timeout_s)
        worker.send(sys.path)  # a function may be the user's
        worker.send((serve, args))
        return worker

    def send(self, message: object) -> None:
        """Send what can be pickled.

        Raises:
            WorkerLost: the worker has ended.
        """
        content = pickle.dumps(message)
        try:
            self.connection.send_bytes(content)
        except OSError:
            raise WorkerLost(self.wait(None)) from None

    def receive(self) -> Any:
        """Wait for what the worker sends next.

        Raises:
            WorkerLost: the worker has ended, or has been stopped for ``timeout_s`` seconds.
        """
        try:
            if not wait_for_message(self.connection, self.process, self._timeout_s):
                raise WorkerLost(None)
            content = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise WorkerLost(self.wait(None)) from None
        return pickle.loads(content)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)`` of a worker that runs ``answer_calls``; all of them are pickled. What the function raises
        is raised here.

        Raises:
            WorkerLost: see ``receive``.
        """
        self.send((function, args))
        return self.answer()

    def answer(self) -> Any:
        """The answer to a call that was sent."""
        value, error, where = self.receive()
        if error is not None:
            raise error from (None if isinstance(error, FullGNNError) else _Remote(where))
        return value

    def kill(self, session: bool = False) -> None:
        """End the worker, whatever it does, and wait for that.

        Args:
            session: also end what it has started, if it has made a session of its own.
        """
        if session:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        if self.wait(0) is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.wait(None)

    def close(self) -> None:
        """Let the worker end, since nobody asks it any more, and wait for that. May be called repeatedly."""
        self.connection.close()
        if self.process.state() == "stopped":
            self.kill()  # it would not notice
        self.wait(None)


def answer_calls(connection: Connection, *first: Any) -> None:
    """Answer calls until the ``connection`` is closed.

    Args:
        first: arguments of every function before those of the call.
    """
    while True:
        try:
            function, args = receive(connection)
        except (EOFError, OSError):
            return
        try:
            answer: tuple[Any, Exception | None, str] = function(*first, *args), None, ""
        except Exception as error:
            answer = None, _picklable(error), "".join(traceback.format_tb(error.__traceback__))
        send(connection, answer)


def send(connection: Connection, message: object) -> None:
    """Send what can be pickled to the process that a worker works for, or to a worker."""
    connection.send_bytes(pickle.dumps(message))


def receive(connection: Connection) -> Any:
    """Wait for a message of the process that a worker works for."""
    return pickle.loads(connection.recv_bytes())


class _Remote(Exception):
    """Where an error was raised in a worker."""

    def __str__(self) -> str:
        return f"in another process\n{self.args[0]}"


class _Fork:
    """A fork of this process, of whose end the system tells once."""

    def __init__(self, pid: int):
        self._pid = pid
        self._status: int | None = None

    def wait(self, timeout_s: float | None) -> int | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._status is None:
            try:
                pid, status = os.waitpid(self._pid, 0 if deadline is None else os.WNOHANG)
            except ChildProcessError:  # somebody else has asked for its status
                pid, status = self._pid, 0
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            elif deadline is not None and time.monotonic() >= deadline:
                break
            else:
                time.sleep(0.01)
        return self._status


def _wait_for(process: subprocess.Popen[bytes], timeout_s: float | None) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def _run_fork(serve: Serve, connection: Connection, args: tuple[Any, ...], parent: int) -> NoReturn:
    status = 1
    try:
        for end in _ends:
            end.close()
        os.environ[LAUNCHER_PID] = str(parent)
        end_with_launcher()
        serve(connection, *args)
        status = 0
    except (EOFError, ConnectionError):  # the connection was closed
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)  # nothing may run of what the process, of which this one is a copy, would do at its end


def _run_new(connection: Connection, parent: int) -> None:
    os.environ[LAUNCHER_PID] = str(parent)
    end_with_launcher()
    with suppress(EOFError, ConnectionError):
        sys.path[:] = receive(connection)
        serve, args = receive(connection)
        serve(connection, *args)


def _picklable(error: Exception) -> Exception:
    """``error``, or one with its text if it cannot be sent."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:  # a class of a user's module may raise anything here
        return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _run_new(Connection(int(sys.argv[1])), int(sys.argv[2]))
