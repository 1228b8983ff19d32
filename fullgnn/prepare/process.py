"""A process of its own for rank 0's work on the whole graph, whose memory is free again when the process has ended.

The process has the graph that it has loaded last, so that a planner may look at it before it is prepared. Where a fork
is possible, it is forked before the rank joins its job: after that the rank has threads. Otherwise a new Python is
started when there is something to do.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from fullgnn.distributed.launch import can_fork, use_default_handlers
from fullgnn.distributed.worker import Worker, WorkerLost, answer_calls
from fullgnn.errors import UnsupportedError
from fullgnn.room import module_on_use
from fullgnn.telemetry.log import setup_logging

if TYPE_CHECKING:
    from fullgnn.kernels.support import vectors
else:
    vectors = module_on_use("fullgnn.kernels.support.vectors")

T = TypeVar("T")


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
        self._worker: Worker | None = None
        if can_fork():
            vectors.load_compiler()
            self._worker = Worker.forked(_serve, timeout_s=timeout_s)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Return ``function(*args)``, or raise what it raises.

        Raises:
            UnsupportedError: the process has been killed, or stopped for ``timeout_s`` seconds.
        """
        try:
            self._worker = self._worker or Worker.started(_serve, timeout_s=self._timeout_s)
            return self._worker.call(function, *args)
        except WorkerLost as lost:
            assert self._worker is not None
            self._worker.kill()
            raise UnsupportedError(self._how_it_ended(lost.status, self._worker.process.pid)) from lost

    def close(self) -> None:
        """See ``PreparationWorker.close``."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _how_it_ended(self, status: int | None, pid: int) -> str:
        """What a user is told of a process that was lost before it answered, see ``WorkerLost``."""
        what = "the process that prepares the graph"
        if status is None:
            return f"{what} (process {pid}) has been stopped for runtime.timeout_s={self._timeout_s:g} s: start again"
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        cure = "start again; if it ends so again, report its last lines as a fault of fullgnn or of a library"
        if status == -signal.SIGKILL:
            cure = (
                "if memory was too little, prepare the graph where there is more of it (python -m fullgnn.prepare), in"
                " a runtime.cache_dir that this machine reads"
            )
        return f"{what} {how}: {cure}"


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


def _serve(connection: Connection) -> None:
    """The process: it answers calls, with all processors of this machine."""
    use_default_handlers()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    setup_logging(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    answer_calls(connection)
