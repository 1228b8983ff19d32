"""Start ranks on this machine, watch them until all have ended, and stop them.

A rank is a new process, or a fork of this one, which has imported everything already. When a rank fails, this process
ends the others. When a signal asks this process to stop, it asks the ranks, which may write a checkpoint first. A rank,
or any other process, records such a signal inside of ``stop_requests``, so that the work in progress can end in order.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import torch

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.command import end_process, fail_if_known
from fullgnn.distributed.failure import REASON_FILE, is_lost_connection, report_bug, worker_error
from fullgnn.distributed.mesh import num_threads
from fullgnn.errors import FullGNNError
from fullgnn.room import module_on_use
from fullgnn.startup import LAUNCHER_PID, STORE_FILE, end_with_launcher
from fullgnn.storage.folder import temporary_folder
from fullgnn.telemetry.log import setup_logging

if TYPE_CHECKING:
    from fullgnn.kernels.support import vectors
else:
    vectors = module_on_use("fullgnn.kernels.support.vectors")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals that ask a process to stop."""

REPEATED_AFTER_S = 1.0
"""A signal that comes sooner after the first one repeats it: a terminal's Ctrl-C reaches a rank from the terminal and
from the launcher."""

STOP_TIMEOUT_S = 10.0
"""Seconds in which ranks that are asked to stop may write a checkpoint and end, before they are killed."""

_POLL_S = 0.02
_STOP_STATUSES = {128 + number for number in STOP_SIGNALS}


def launch_workers(arguments: list[str], nproc: int, runtime: RuntimeConfig) -> None:
    """Run ``python arguments...`` as ``nproc`` ranks on this machine, each a new process, and wait for them.

    Raises: as ``Ranks.watch``.
    """
    with started_ranks(nproc, runtime) as ranks:
        for variables in ranks.variables:
            # In a session of its own, a rank does not see a terminal's Ctrl-C, which ends imports with a traceback.
            command, of_rank = [sys.executable, *arguments], {**os.environ, **variables}
            process = subprocess.Popen(command, env=of_rank, start_new_session=True)
            ranks.started.append(Rank(process.pid, process.poll))
        ranks.watch()


def fork_workers(function: Callable[..., object], *args: object, nproc: int, runtime: RuntimeConfig) -> None:
    """Run ``function(*args)`` in ``nproc`` forks of this process, as ranks, and wait for them.

    A forked rank has imported everything already, numba's compiler too, which saves seconds. ``can_fork`` tells whether
    this is possible.
    The ranks find each other through a file: a store on a port would need a thread of this process, and a fork at a
    moment when that thread holds a lock of the C library, say to look up a host name, would wait for the lock forever.

    Raises: as ``Ranks.watch``.
    """
    vectors.load_compiler()
    with started_ranks(nproc, runtime) as ranks:
        for variables in ranks.variables:
            process = multiprocessing.get_context("fork").Process(target=_rank, args=(variables, function, args))
            process.start()
            assert process.pid is not None
            ranks.started.append(Rank(process.pid, partial(getattr, process, "exitcode")))
        ranks.watch()


def _rank(variables: dict[str, str], function: Callable[..., object], args: tuple[object, ...]) -> None:
    """Run ``function(*args)`` as a new process would: signals end it, a user error ends it with one line and status 1,
    and a bug is reported with its traceback."""
    use_default_handlers()
    os.environ |= variables
    end_with_launcher()
    setup_logging(int(os.environ["RANK"]))
    try:
        function(*args)
    except Exception as error:
        fail_if_known(error, "the work of this rank")
        report_bug(error)
        traceback.print_exc()
        end_process(1)


def can_fork() -> bool:
    """Whether ranks may be forked from this process: it computes in one thread, and no GPU is visible.

    A fork copies only the thread that calls it. OpenMP would wait in the copy for threads that it has started before,
    and CUDA cannot be used in the copy of a process that has used it.
    """
    return torch.get_num_threads() == 1 and torch.cuda.device_count() == 0


@dataclass(frozen=True)
class Rank:
    """A process that this one has started."""

    pid: int
    poll: Callable[[], int | None]
    """Return the exit status, the negated number of the signal that killed the process, or None while it runs."""

    def send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@dataclass
class Ranks:
    """The ranks of a job on this machine."""

    variables: list[dict[str, str]]
    """For each rank, the environment variables that differ from those of this process."""
    folder: Path
    request: "StopRequest"
    started: list[Rank] = field(default_factory=list)

    def watch(self) -> None:
        """Wait until all ranks have ended well.

        Raises (maybe while ranks still run):
            WorkerError: a rank failed. The message is that of the rank that failed first.
            KeyboardInterrupt, SystemExit: a signal asked this process or a rank to stop, and all ranks have ended.
        """
        _wait(lambda: self.request.signal is not None or self.all_ended() or bool(self._failed()))
        failed = self._failed()
        if self.request.signal is not None:
            for rank in self.started:
                rank.send(signal.SIGTERM)
            _wait(lambda: self.request.is_urgent or self.all_ended(), STOP_TIMEOUT_S)
            raise stopped_by(self.request.signal)
        if stopping := _STOP_STATUSES & set(failed.values()):  # the ranks alone received a signal, and agreed to stop
            _wait(lambda: self.request.signal is not None or self.all_ended(), STOP_TIMEOUT_S)
            raise stopped_by(min(stopping) - 128)
        if failed:
            # A rank that was killed comes first: it reports nothing, and other ranks fail because of it.
            times = {number: _time_of(_reason_file(self.folder, number)) for number in failed}
            number, status = min(failed.items(), key=lambda item: (item[1] >= 0, times[item[0]]))
            raise worker_error(number, status, _reason_file(self.folder, number))

    def all_ended(self) -> bool:
        return all(rank.poll() is not None for rank in self.started)

    def _failed(self) -> dict[int, int]:
        """The exit statuses of the ranks that have failed, by rank."""
        return {number: status for number, rank in enumerate(self.started) if (status := rank.poll())}


@contextmanager
def started_ranks(nproc: int, runtime: RuntimeConfig) -> Iterator[Ranks]:
    """The ``nproc`` ranks that the ``with`` block starts; those that still run are killed at its end.

    When a signal asks this process to stop, the ranks receive SIGTERM and have ``STOP_TIMEOUT_S`` seconds to end by
    themselves. A second signal kills them at once.
    """
    threads = str(num_threads(runtime, nproc))  # libraries read it at import
    # STORE_FILE is unset, because it may name the store of a job to which this process itself belongs.
    variables = {"OMP_NUM_THREADS": threads, STORE_FILE: None, LAUNCHER_PID: str(os.getpid())}
    with (
        temporary_folder() as folder,
        environment(variables),
        stop_requests(end_if_urgent=False) as request,
    ):
        ranks = Ranks([_variables(rank, nproc, folder) for rank in range(nproc)], folder, request)
        try:
            yield ranks
        finally:
            for process in ranks.started:
                process.send(signal.SIGKILL)  # ends also a rank that has been suspended
            _wait(ranks.all_ended, STOP_TIMEOUT_S)


def _variables(rank: int, nproc: int, folder: Path) -> dict[str, str]:
    """What torchrun would tell a rank, and the store of the job."""
    return {
        **{name: str(rank) for name in ("RANK", "LOCAL_RANK")},
        **{name: str(nproc) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")},
        STORE_FILE: str(folder / "store"),
        REASON_FILE: str(_reason_file(folder, rank)),
    }


def _reason_file(folder: Path, rank: int) -> Path:
    return folder / f"reason_{rank}.json"


def _time_of(file: Path) -> float:
    return file.stat().st_mtime_ns if file.exists() else float("inf")


def _wait(condition: Callable[[], bool], timeout_s: float = float("inf")) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set ``variables`` in ``os.environ``, and unset those that are None, for the ``with`` block and what it starts. At
    its end, the environment is what it was."""
    before = dict(os.environ)
    for key, value in variables.items():
        os.environ.pop(key, None)
        if value is not None:
            os.environ[key] = value
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ |= {name: value for name, value in before.items() if os.environ.get(name) != value}


@dataclass
class StopRequest:
    """Whether the process has been asked to stop."""

    signal: int | None = None
    """The first signal that was received, or None."""
    is_urgent: bool = False
    """Whether another signal was received, at least ``REPEATED_AFTER_S`` seconds after the first."""
    problem: FullGNNError | None = None
    """Why this process itself asks all ranks to stop, without a signal."""
    _time: float = 0.0

    @property
    def is_asked(self) -> bool:
        """Whether there is a reason to stop."""
        return self.signal is not None or self.problem is not None

    def raise_problem(self) -> None:
        """Raise ``problem``, if there is one."""
        if self.problem is not None:
            raise self.problem

    def receive(self, number: int) -> None:
        """Record the signal ``number``, which has just come."""
        now = time.monotonic()
        if self.signal is None:
            self.signal, self._time = number, now
        elif now - self._time >= REPEATED_AFTER_S:
            self.is_urgent = True


@contextmanager
def stop_requests(end_if_urgent: bool = True) -> Iterator[StopRequest]:
    """Record the signals that ask this process to stop, instead of ending at once.

    A process that has been asked to stop and then loses the connection to another rank ends silently: the launcher is
    ending the job, and the other rank may have ended before.

    Args:
        end_if_urgent: whether a second signal ends the process at once; see ``StopRequest.is_urgent``.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        request.receive(number)
        if request.is_urgent and end_if_urgent:
            end_by(number)

    with stop_signals_call(handle):
        try:
            yield request
        except Exception as error:
            if request.signal is not None and is_lost_connection(error):
                end_by(request.signal)
            raise


@contextmanager
def stop_signals_call(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let the signals that ask this process to stop call ``handle`` inside the ``with`` block.

    Signals that are ignored when the block begins stay ignored (``nohup``). Python calls signal handlers in the main
    thread only, between two of its own instructions; in another thread the block changes nothing.
    """
    previous = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        # None is the handler of a library in C, which Python could not restore.
        previous = {number: old for number, old in handlers.items() if old not in (signal.SIG_IGN, None)}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def stopped_by(number: int) -> BaseException:
    """What the signal ``number`` raises in a process that has recorded it."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def end_by(number: int) -> None:
    """End this process as the signal ``number`` does where it has no handler. Called in the main thread."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def use_default_handlers() -> None:
    """Let each stop signal that is not ignored end this process silently, even while it waits in a collective."""
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
