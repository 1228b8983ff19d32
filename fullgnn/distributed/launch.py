"""Start worker processes on this machine with torch's elastic launcher, as torchrun does."""

import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.mesh import num_threads
from fullgnn.distributed.store import STORE_FILE, job_store
from fullgnn.errors import FullGNNError

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end a job: a launcher has handlers for them while its ranks run."""


class WorkerError(FullGNNError):
    """A job's workers failed. ``is_logged`` tells whether a rank has logged the reason itself before it ended."""

    def __init__(self, message: str, is_logged: bool):
        super().__init__(message)
        self.is_logged = is_logged


def under_torchrun() -> bool:
    """Whether this process is a rank that torchrun, ``launch_workers`` or ``fork_workers`` has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ or STORE_FILE in os.environ


def launch_workers(arguments: list[str], nproc: int, runtime: RuntimeConfig) -> None:
    """Run ``python arguments...`` as ``nproc`` ranks on this machine and wait for them.

    Raises:
        WorkerError: a rank failed. The message is that of the rank that failed first.
        KeyboardInterrupt, SystemExit: this process received a signal to stop, and the ranks have been stopped.
    """
    with starting_ranks(nproc, runtime) as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=nproc,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            elastic_launch(config, sys.executable)(*arguments)
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            raise worker_error(failure.message, failure.exitcode) from None
        except SignalException as stop:
            if stop.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(128 + stop.sigval) from None


def report_failure(error: BaseException) -> None:
    """Write ``error`` to the file in which the launcher of this rank looks for the reason of a failure.

    The format is that of torch's ``ErrorHandler``, but a user error is written without its call stack.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return
    extra = {"timestamp": str(int(time.time()))}
    if not isinstance(error, FullGNNError):
        extra["py_callstack"] = "".join(traceback.format_exception(error))
    reason = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    Path(file).write_text(json.dumps(reason))


def wait_for_others(timeout_s: float = 5.0) -> None:
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


@contextmanager
def starting_ranks(nproc: int, runtime: RuntimeConfig) -> Iterator[str]:
    """A folder for files of the launcher, and what holds while ``nproc`` ranks are started on this machine and run."""
    for name in ("torch.distributed.elastic", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # the ranks log their own errors
    variables = {
        "OMP_NUM_THREADS": str(num_threads(runtime, nproc)),  # libraries read it at import
        STORE_FILE: None,  # of a job to which this process itself belongs
    }
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder, _own_handlers(), environment(variables):
        yield folder


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


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Restore the signal handlers at the end of the ``with`` block, since a launcher replaces them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # in other threads a launcher replaces no handlers
        return
    handlers = {name: signal.getsignal(name) for name in STOP_SIGNALS}
    try:
        yield
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)


def worker_error(message: str | dict, exitcode: int) -> WorkerError:
    """The error of a rank that ended with ``exitcode``, and with a ``message`` if it called ``report_failure``."""
    if isinstance(message, dict):  # the rank wrote the message with report_failure
        return WorkerError(" ".join(message.get("message", "").split()), is_logged=True)
    if exitcode == -signal.SIGKILL:
        return WorkerError(
            "a worker was killed, as the system does when memory runs out: try a smaller graph", is_logged=False
        )
    if exitcode < 0:
        return WorkerError(f"a worker was killed by {signal.Signals(-exitcode).name}", is_logged=False)
    return WorkerError(f"a worker exited with status {exitcode}", is_logged=False)
