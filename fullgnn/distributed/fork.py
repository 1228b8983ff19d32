"""Start ranks on this machine as forks of this process, which have imported everything already."""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch
from torch.multiprocessing import ProcessContext, ProcessExitedException, start_processes

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.launch import STOP_SIGNALS, report_failure, starting_ranks, worker_error
from fullgnn.distributed.store import STORE_FILE


def can_fork() -> bool:
    """Whether ranks may be forked from this process: it computes in one thread, and no GPU is visible.

    A fork copies only the thread that calls it. OpenMP would wait in the copy for threads that it has started before,
    and CUDA cannot be used in the copy of a process that has used it.
    """
    return torch.get_num_threads() == 1 and torch.cuda.device_count() == 0


def fork_workers(function: Callable[..., object], *args: object, nproc: int, runtime: RuntimeConfig) -> None:
    """Run ``function(*args)`` in ``nproc`` forks of this process, as ranks, and wait for them.

    A forked rank has imported everything already, which saves seconds. ``can_fork`` tells whether this is possible.
    The ranks find each other through a file: a store on a port would need a thread of this process, and a fork at a
    moment when that thread holds a lock of the C library, say to look up a host name, would wait for the lock forever.

    Raises: as ``launch_workers``.
    """
    with starting_ranks(nproc, runtime) as folder:
        _stop_at_signals()
        ranks = start_processes(_rank, (nproc, folder, function, args), nproc, join=False, start_method="fork")
        try:
            while not ranks.join():
                pass
        except ProcessExitedException as failure:
            raise worker_error(_reason(folder, failure.error_index), failure.exit_code) from None
        finally:
            _end(ranks)


def _rank(rank: int, nproc: int, folder: str, function: Callable[..., object], args: tuple[object, ...]) -> None:
    """Run ``function(*args)`` as a new process would: signals end it, and a bug is reported with its traceback."""
    for name in STOP_SIGNALS:
        signal.signal(name, signal.SIG_DFL)
    os.environ |= {
        **{name: str(rank) for name in ("RANK", "LOCAL_RANK")},
        **{name: str(nproc) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")},
        STORE_FILE: str(Path(folder) / "store"),
        "TORCHELASTIC_ERROR_FILE": str(_reason_file(folder, rank)),
    }
    try:
        function(*args)
    except Exception as error:
        report_failure(error)
        traceback.print_exc()
        sys.exit(1)


def _reason_file(folder: str, rank: int) -> Path:
    return Path(folder) / f"reason_{rank}.json"


def _reason(folder: str, rank: int) -> dict | str:
    """What the rank that failed first has reported: ``rank``, or one before it whose end was noticed later."""
    if not _reason_file(folder, rank).exists():
        return ""
    first = min(Path(folder).glob("reason_*.json"), key=lambda file: file.stat().st_mtime_ns)
    return json.loads(first.read_text())["message"]


def _stop_at_signals() -> None:
    """Let the signals that end this process raise an exception in it, so that its ranks are ended before it."""
    if threading.current_thread() is threading.main_thread():
        for name in STOP_SIGNALS:
            signal.signal(name, signal.default_int_handler if name == signal.SIGINT else _stop)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _end(ranks: ProcessContext) -> None:
    """End the ranks that still run, since another has failed or this process is being stopped."""
    for process in ranks.processes:
        process.kill()  # also a rank that has been suspended
    for process in ranks.processes:
        process.join()
