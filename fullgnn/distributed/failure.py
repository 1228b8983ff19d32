"""Reports of ranks that fail: the launcher shows the cause of a failure first and alone.

The launcher ends all ranks as soon as one has ended. A rank that fails because another rank has ended therefore waits
before it prints anything, so that only the rank that failed first is seen.
"""

import json
import logging
import os
import signal
import time
import traceback
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist

from fullgnn.distributed.presence import LostRank, job_store
from fullgnn.errors import FullGNNError, message_of

log = logging.getLogger(__name__)

REASON_FILE = "TORCHELASTIC_ERROR_FILE"
"""Environment variable of a rank: the path of the file in which its launcher looks for the reason of a failure."""

WAIT_S = 5.0
"""Seconds in which a launcher ends a rank, after another rank has ended."""


class WorkerError(FullGNNError):
    """A job's workers failed. ``is_logged`` tells whether a rank has logged the reason itself before it ended."""

    def __init__(self, message: str, is_logged: bool):
        super().__init__(message)
        self.is_logged = is_logged


def report_failure(error: BaseException) -> None:
    """Write ``error`` to the file in which the launcher of this rank looks for the reason of a failure.

    The format is that of torch's ``ErrorHandler``, but a user error is written without its call stack.
    """
    file = os.environ.get(REASON_FILE)
    if not file:
        return
    extra = {"timestamp": str(int(time.time()))}
    if not isinstance(error, FullGNNError):
        extra["py_callstack"] = "".join(traceback.format_exception(error))
    reason = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    Path(file).write_text(json.dumps(reason))


def report_bug(error: BaseException) -> None:
    """Report an ``error`` that is not a user's. The caller then prints its traceback and ends this process.

    A rank waits here if its error follows from that of another rank, or if another rank reports a bug as well. In most
    cases the launcher ends it during the wait, because the rank that failed first has ended.
    """
    if is_lost_connection(error):
        time.sleep(WAIT_S)
    if not _reports_first():
        time.sleep(WAIT_S)
    report_failure(error)


def report_lost_rank(error: LostRank) -> None:
    """Log and report that another rank is lost, once for the job. The caller then ends this process, whereupon the
    launcher ends the other ranks. A rank that is stopped goes on, since the signal that ends it would not reach it."""
    if not _reports_first():
        time.sleep(WAIT_S)
    log.error("%s", message_of(error))
    report_failure(error)
    for pid in error.stopped:
        with suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def is_lost_connection(error: BaseException) -> bool:
    """Whether ``error`` says that another rank cannot be reached, or does not answer. gloo raises RuntimeError."""
    return isinstance(error, (ConnectionError, TimeoutError, dist.DistError)) or "gloo/" in str(error)


def is_timeout(error: BaseException) -> bool:
    """Whether ``error`` says that another rank has not answered in time; its process may well be there."""
    return isinstance(error, TimeoutError) or "timed out" in str(error).lower()


def _reports_first() -> bool:
    """Whether no other rank of this job has reported a bug; True if the ranks cannot be asked."""
    try:
        return job_store("bug", WAIT_S).add("reports", 1) == 1
    except Exception:  # whatever is wrong with the store, the bug itself must be shown
        return True


def wait_for_others(timeout_s: float = 10.0) -> None:
    """Wait, for at most ``timeout_s``, until every rank is about to fail.

    The launcher ends all ranks as soon as one exits. Thanks to this wait, each rank logs its error before that.
    """
    size = int(os.environ["WORLD_SIZE"])
    deadline = time.monotonic() + timeout_s
    with suppress(RuntimeError):  # the launcher has ended already
        store = job_store("failure", timeout_s)
        num_failed = store.add("failed", 1)
        while num_failed < size and time.monotonic() < deadline:
            time.sleep(0.05)
            num_failed = store.add("failed", 0)


def worker_error(rank: int, status: int, reason_file: Path) -> WorkerError:
    """The error of a ``rank`` that ended with ``status``, and with a ``reason_file`` if it called ``report_failure``.

    Args:
        status: the exit status, or the negated number of the signal that killed the rank.
    """
    if status == -signal.SIGKILL:
        return WorkerError(
            f"rank {rank} was killed (SIGKILL), as the system does when memory runs out: python -m fullgnn.plan shows "
            "what a rank needs; use more ranks or a smaller graph",
            is_logged=False,
        )
    if status < 0:
        return WorkerError(f"rank {rank} was killed ({signal.Signals(-status).name})", is_logged=False)
    if reason_file.exists():
        message = json.loads(reason_file.read_text())["message"]["message"]
        return WorkerError(" ".join(message.split()), is_logged=True)
    return WorkerError(f"rank {rank} exited with status {status}", is_logged=False)
