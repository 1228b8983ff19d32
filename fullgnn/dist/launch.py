"""Starting worker processes on this machine with torch's elastic launcher, as torchrun does."""

import logging
import os
import sys
import tempfile
import uuid

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, get_error_handler
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from fullgnn.config import RuntimeConfig
from fullgnn.dist.mesh import num_threads
from fullgnn.errors import FullGNNError


class WorkerError(FullGNNError):
    """A job's workers failed; they have already said why."""


def under_torchrun() -> bool:
    """Whether this process is a rank that torchrun, or ``launch_workers``, has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def launch_workers(arguments: list[str], nproc: int, runtime: RuntimeConfig) -> None:
    """Run ``python arguments...`` as ``nproc`` ranks on this machine and wait for them.

    Raises:
        WorkerError: a rank failed. The message is the first failing rank's.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the ranks speak for themselves
    os.environ["OMP_NUM_THREADS"] = str(num_threads(runtime, nproc))
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
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
            raise WorkerError(_reason(failure.message, failure.exitcode)) from None


def report_failure(error: Exception) -> None:
    """Leave ``error`` where the launcher that started this rank looks for the reason of a failure."""
    get_error_handler().record_exception(error)


def _reason(message: str | dict, exitcode: int) -> str:
    text = message.get("message", "") if isinstance(message, dict) else str(message)
    if exitcode < 0 and not isinstance(message, dict):
        return f"a worker was killed by signal {-exitcode}" + (" (out of memory?)" if exitcode == -9 else "")
    return " ".join(text.split()) or f"a worker exited with status {exitcode}"
