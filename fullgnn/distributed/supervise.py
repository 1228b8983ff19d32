"""Watch the ranks that this process has started, until all have ended; end them when one fails or a signal comes."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.failure import REASON_FILE, worker_error
from fullgnn.distributed.mesh import num_threads
from fullgnn.distributed.stop import STOP_SIGNALS, StopRequest, stop_requests
from fullgnn.distributed.store import STORE_FILE
from fullgnn.startup import LAUNCHER_PID
from fullgnn.storage.temporary import temporary_folder

STOP_TIMEOUT_S = 10.0
"""Seconds in which ranks that are asked to stop may write a checkpoint and end, before they are killed."""

_POLL_S = 0.02
_STOP_STATUSES = {128 + number for number in STOP_SIGNALS}


@dataclass(frozen=True)
class Rank:
    """A process that this one has started."""

    pid: int
    poll: Callable[[], int | None]
    """Return the exit status, the negated number of the signal that killed the process, or None while it runs."""

    def send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def run_ranks(start: Callable[[dict[str, str]], Rank], nproc: int, runtime: RuntimeConfig) -> None:
    """Start ``nproc`` ranks on this machine and wait for them.

    When a signal asks this process to stop, the ranks receive SIGTERM and have ``STOP_TIMEOUT_S`` seconds to end by
    themselves. A second signal kills them at once.

    Args:
        start: starts a rank, given the environment variables that differ from this process's.

    Raises:
        WorkerError: a rank failed. The message is that of the rank that failed first.
        KeyboardInterrupt, SystemExit: a signal asked this process or a rank to stop, and all ranks have ended.
    """
    threads = str(num_threads(runtime, nproc))  # libraries read it at import
    # STORE_FILE is unset, because it may name the store of a job to which this process itself belongs.
    variables = {"OMP_NUM_THREADS": threads, STORE_FILE: None, LAUNCHER_PID: str(os.getpid())}
    ranks: list[Rank] = []
    with (
        temporary_folder() as folder,
        environment(variables),
        stop_requests(end_if_urgent=False) as request,
    ):
        try:
            for rank in range(nproc):
                ranks.append(start(_variables(rank, nproc, folder)))
            _watch(ranks, folder, request)
        finally:
            for process in ranks:
                process.send(signal.SIGKILL)  # ends also a rank that has been suspended
            _wait(lambda: _all_ended(ranks), STOP_TIMEOUT_S)


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


def _watch(ranks: list[Rank], folder: Path, request: StopRequest) -> None:
    """Return when all ranks have ended well. Raises: as ``run_ranks``, maybe while ranks still run."""
    _wait(lambda: request.signal is not None or _all_ended(ranks) or bool(_failed(ranks)))
    failed = _failed(ranks)
    if request.signal is not None:
        for rank in ranks:
            rank.send(signal.SIGTERM)
        _wait(lambda: request.is_urgent or _all_ended(ranks), STOP_TIMEOUT_S)
        raise _stopped(request.signal)
    if stopping := _STOP_STATUSES & set(failed.values()):  # the ranks alone received a signal, and agreed to stop
        _wait(lambda: request.signal is not None or _all_ended(ranks), STOP_TIMEOUT_S)
        raise _stopped(min(stopping) - 128)
    if failed:
        # A rank that was killed comes first: it reports nothing, and other ranks fail because of it.
        number, status = min(failed.items(), key=lambda item: (item[1] >= 0, _time_of(_reason_file(folder, item[0]))))
        raise worker_error(number, status, _reason_file(folder, number))


def _time_of(file: Path) -> float:
    return file.stat().st_mtime_ns if file.exists() else float("inf")


def _all_ended(ranks: list[Rank]) -> bool:
    return all(rank.poll() is not None for rank in ranks)


def _failed(ranks: list[Rank]) -> dict[int, int]:
    """The exit statuses of the ranks that have failed, by rank."""
    return {number: status for number, rank in enumerate(ranks) if (status := rank.poll())}


def _stopped(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _wait(condition: Callable[[], bool], timeout_s: float = float("inf")) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set ``variables`` in ``os.environ``, and unset those that are None, for processes that the block starts."""
    before = dict(os.environ)
    for key, value in variables.items():
        os.environ.pop(key, None)
        if value is not None:
            os.environ[key] = value
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
