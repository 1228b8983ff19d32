"""The key-value store in which the ranks of a job find each other, wait for each other, and notice ranks that are lost.

torchrun keeps one store while its ranks run, also when it starts them again (``--max-restarts``); ranks that fullgnn
has started share a file instead. Keys that are written there stay. So each start of the ranks has its own key prefix,
and in it each use of the store, since a script may train several times: the name of the use and a counter. All ranks
use the store for the same purposes in the same order, so that their counters agree.

Rank 0 may prepare a graph for hours while the others have nothing to do. A collective would end them after
``runtime.timeout_s`` seconds, which is meant for ranks that are lost. The ranks therefore meet in the key-value store
before they exchange objects of the host: a rank that waits there looks at the others about once a second.

    on its machine      it asks the system whether their processes run, are stopped or have ended
    on other machines   it reads their heartbeats: where a job runs on several machines, a thread of each rank counts

A rank is lost if it has been stopped, or has not counted, for ``runtime.timeout_s`` seconds; then every waiting rank
raises ``LostRank``. A rank that has ended or left the job raises ``ConnectionError``: its launcher names the cause.
Where the launcher of another machine has ended too, nobody else does, and ``joining.py`` turns it into a ``LostRank``.
"""

import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import torch.distributed as dist

from fullgnn.distributed.store import agree_on_token
from fullgnn.errors import FullGNNError
from fullgnn.startup import STORE_FILE

LOOK_S = 1.0
"""Seconds between two looks at the other ranks."""
BEAT_S = 1.0
"""Seconds between two heartbeats."""

_connection: dist.Store | None = None  # kept, because a store that rank 0 hosts lives as long as this object
_token = ""  # distinguishes this start of the ranks from earlier ones; the same on all ranks
_uses: Counter[str] = Counter()

_FIRST_NAP_S, _LONGEST_NAP_S = 2e-4, 1e-2  # between two looks at a store that is a file


def is_file() -> bool:
    """Whether the store of the job is a file, which all its ranks, on one machine, share."""
    return STORE_FILE in os.environ


def job_store(use: str, timeout_s: float) -> dist.Store:
    """Connect to the store of the job that the environment describes, with a new key prefix for this ``use``.

    The first call on a rank returns when rank 0 has called this function too, and on rank 0 when all ranks have.

    Args:
        timeout_s: seconds after which connecting, or waiting for a key, raises RuntimeError.

    Raises:
        AbsentRank: a rank has not come in that time.
    """
    global _connection, _token
    _uses[use] += 1
    if _connection is None:
        connection = _connect(timeout_s)
        _token = "" if is_file() else agree_on_token(connection, *_place(), timeout_s)
        _connection = connection
    return _prefixed(_connection, use, timeout_s)


def another_connection(use: str, timeout_s: float) -> dist.Store:
    """The store that the latest ``job_store`` of this ``use`` has returned, over a connection of its own: a thread that
    shares a connection would wait while another thread waits for a key."""
    return _prefixed(_connect(timeout_s), use, timeout_s)


def _connect(timeout_s: float) -> dist.Store:
    if path := os.environ.get(STORE_FILE):
        return dist.FileStore(path)
    return next(dist.rendezvous("env://", *_place(), timeout=timedelta(seconds=timeout_s)))[0]


def _place() -> tuple[int, int]:
    """This process's rank, and the number of ranks."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _prefixed(connection: dist.Store, use: str, timeout_s: float) -> dist.Store:
    store = dist.PrefixStore(f"fullgnn/{_token}/{use}/{_uses[use]}", connection)
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


class LostRank(FullGNNError):
    """A rank does not answer any more, although its process has not ended. Raised on every rank that waits for it.

    Args:
        stopped: process ids of such ranks on this machine, which have been stopped.
    """

    def __init__(self, message: str, stopped: Sequence[int] = ()):
        super().__init__(message)
        self.stopped = stopped


@dataclass(frozen=True)
class Process:
    """A process of a job, as another process of its machine finds it."""

    machine: str  # name of the machine, and of the process's namespace of process ids
    pid: int
    started: str  # in clock ticks since the machine was booted: a later process may have the same id

    @staticmethod
    def of(pid: int) -> "Process":
        """The process ``pid`` of this machine."""
        namespace = ""
        with suppress(OSError):
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            namespace = f"{boot} {os.readlink('/proc/self/ns/pid')}"
        return Process(f"{platform.node()} {namespace}".strip(), pid, _stat(pid)[1])

    @staticmethod
    def current() -> "Process":
        return Process.of(os.getpid())

    def state(self) -> str:
        """``running``, ``stopped`` or ``ended``, of a process of this machine."""
        state, started = _stat(self.pid)
        if not started and not Path("/proc/self/stat").exists():  # a system without /proc
            return "running" if _exists(self.pid) else "ended"
        if started != self.started or state in "ZX":
            return "ended"
        return "stopped" if state in "Tt" else "running"


def _stat(pid: int) -> tuple[str, str]:
    """The state of a process, as one letter of /proc/PID/stat, and when it was started; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Silence:
    """How long something has shown no sign of life, as seen by a process that may itself have been stopped meanwhile.

    Time counts between two looks only, and at most twice what lies between them as a rule: after a whole job was
    suspended and goes on, no rank seems lost.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last = time.monotonic()

    def look(self, alive: bool) -> float:
        """Note whether there is a sign of life now. Returns the seconds since there was the last one."""
        now = time.monotonic()
        self.seconds = 0.0 if alive else self.seconds + min(now - self._last, 2 * LOOK_S)
        self._last = now
        return self.seconds


def wait_for_message(connection: Connection, process: Process, timeout_s: float) -> bool:
    """Wait until a process of this machine has sent something, or has closed its end of ``connection``.

    Returns:
        True; False if the process has been stopped for ``timeout_s`` seconds.
    """
    silence = Silence()
    while not connection.poll(LOOK_S):
        if silence.look(process.state() != "stopped") > timeout_s:
            return False
    return True


class Presence:
    """The ranks of a job, as one of them sees the others.

    Args:
        store: with a key prefix of this job. A wait for a key there may raise when its time is over.
        processes: of all ranks, in rank order.
        timeout_s: seconds without a sign of life after which a rank is lost.
        polls: whether the store is a file, in which waiting takes longer than looking again and again.
    """

    def __init__(self, store: dist.Store, rank: int, processes: list[Process], timeout_s: float, polls: bool):
        self.rank, self.size, self.processes, self.timeout_s = rank, len(processes), processes, timeout_s
        self.spans_machines = len({process.machine for process in processes}) > 1
        self._store, self._polls = store, polls
        self._uses: Counter[str] = Counter()
        self._beats: dict[int, bytes] = {}

    def meet(self) -> None:
        """Wait until every rank has called this. All ranks call it."""
        number = self._next("meet")
        if self._store.add(f"meet/{number}", 1) == self.size:
            self._store.set(f"met/{number}", "")
        else:
            self._wait(f"met/{number}", [rank for rank in range(self.size) if rank != self.rank])

    def tell(self, use: str, value: str = "") -> None:
        """Give ``value`` to the ranks that ``hear`` it."""
        self._store.set(f"{use}/{self._next(use)}", value)

    def hear(self, use: str, source: int) -> str:
        """Wait for what rank ``source`` tells in its next ``tell`` of this ``use``."""
        key = f"{use}/{self._next(use)}"
        self._wait(key, [source])
        return self._store.get(key).decode()

    def leave(self) -> None:
        """Let the ranks that wait for this one know that it takes no part any more."""
        with suppress(RuntimeError):  # the launcher, which keeps the store, may have ended
            self._store.set(f"left/{self.rank}", "")

    def all_leave(self, timeout_s: float) -> bool:
        """Wait until every rank has left the job; False: some have not in ``timeout_s`` seconds."""
        keys, deadline, left = [f"left/{rank}" for rank in range(self.size)], time.monotonic() + timeout_s, False
        with suppress(RuntimeError):  # as in ``leave``
            while not (left := self._store.check(keys)) and time.monotonic() < deadline:
                time.sleep(_LONGEST_NAP_S)
        return left

    def silent(self) -> list[int]:
        """The ranks that show no sign of life now. It takes seconds where some ranks run on other machines."""
        here = self.processes[self.rank].machine
        near = {rank: process for rank, process in enumerate(self.processes) if process.machine == here}
        far = [rank for rank in range(self.size) if rank not in near]
        silent = [rank for rank, process in near.items() if rank != self.rank and process.state() == "stopped"]
        if far:
            for rank in far:
                self._beats_again(rank)
            time.sleep(3 * BEAT_S)
            silent += [rank for rank in far if not self._beats_again(rank)]
        return sorted(silent)

    def gone(self) -> list[int]:
        """The ranks that have ended without leaving the job, or whose machine has; empty if the store has, too."""
        here, gone = self.processes[self.rank].machine, []
        with suppress(RuntimeError):
            silent = set(self.silent())
            for rank, process in enumerate(self.processes):
                lost = process.state() == "ended" if process.machine == here else rank in silent
                if lost and not self._store.check([f"left/{rank}"]):
                    gone.append(rank)
        return gone

    def pids_here(self, ranks: Iterable[int]) -> list[int]:
        """The process ids of those ``ranks`` that run on this machine."""
        here = self.processes[self.rank].machine
        return [self.processes[rank].pid for rank in ranks if self.processes[rank].machine == here]

    def describe(self, rank: int) -> str:
        """How to find ``rank``."""
        process = self.processes[rank]
        return f"rank {rank} (process {process.pid} on {process.machine.partition(' ')[0]})"

    def _next(self, use: str) -> int:
        self._uses[use] += 1
        return self._uses[use]

    def _wait(self, key: str, ranks: Iterable[int]) -> None:
        """Wait for ``key``, as long as none of ``ranks``, one of which will set it, is lost.

        Raises:
            LostRank, ConnectionError: one is.
        """
        silences = {rank: Silence() for rank in ranks}
        while not self._has(key):
            for rank, silence in silences.items():
                self._look(rank, silence, key)

    def _has(self, key: str) -> bool:
        """Wait for ``key`` until it is time to look at the other ranks; returns whether it is there."""
        if not self._polls:
            with suppress(RuntimeError):
                self._store.wait([key], timedelta(seconds=LOOK_S))
            return self._store.check([key])
        deadline, nap = time.monotonic() + LOOK_S, _FIRST_NAP_S
        while not (is_set := self._store.check([key])) and time.monotonic() < deadline:
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP_S)
        return is_set

    def _look(self, rank: int, silence: Silence, key: str) -> None:
        """Raise if ``rank`` is lost, or has ended without setting ``key``."""
        process = self.processes[rank]
        if process.machine == self.processes[self.rank].machine:
            state = process.state()
            how = "it is stopped; start again with resume=auto"
        else:
            state = "running" if self._beats_again(rank) else "silent"
            how = "see whether its machine runs and can be reached, then start again with resume=auto"
        if state == "ended" or self._store.check([f"left/{rank}"]):
            if not self._store.check([key]):
                raise ConnectionError(f"rank {rank} has ended")
        elif silence.look(state == "running") > self.timeout_s:
            message = f"{self.describe(rank)} did not answer within runtime.timeout_s={self.timeout_s:g} s: {how}"
            raise LostRank(message, self.pids_here([rank]))

    def _beats_again(self, rank: int) -> bool:
        """Whether the heartbeat of ``rank`` has changed since the last look."""
        key = f"beat/{rank}"
        beat = self._store.get(key) if self._store.check([key]) else b""
        changed, self._beats[rank] = beat != self._beats.get(rank), beat
        return changed


_present: Presence | None = None


def present() -> Presence | None:
    """The ranks of the job of several ranks that this process has joined; None: there is no such job."""
    return _present


@contextmanager
def join(presence: Presence, connect: Callable[[], dist.Store]) -> Iterator[None]:
    """Take part in a job inside the ``with`` block: the functions of ``collectives.py`` wait for ranks that work.

    Args:
        connect: a connection of its own to the store, for the thread with the heartbeats.
    """
    global _present
    outer, done = _present, threading.Event()
    if presence.spans_machines:
        store = connect()
        threading.Thread(target=send_beats, args=(store, presence.rank, done), name="heartbeat", daemon=True).start()
    _present = presence
    try:
        yield
    finally:
        _present = outer
        done.set()
        presence.leave()


def send_beats(store: dist.Store, rank: int, done: threading.Event) -> None:
    """Count in the ``store`` until the rank is ``done``, or the launcher, which keeps the store, has ended."""
    count = 0
    with suppress(RuntimeError):
        while not done.wait(BEAT_S):
            count += 1
            store.set(f"beat/{rank}", str(count))
