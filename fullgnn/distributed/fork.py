"""Start ranks on this machine as forks of this process, which have imported everything already."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkProcess

import torch

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.failure import report_bug
from fullgnn.distributed.joining import end_process
from fullgnn.distributed.stop import use_default_handlers
from fullgnn.distributed.supervise import Rank, run_ranks
from fullgnn.startup import end_with_launcher


def can_fork() -> bool:
    """Whether ranks may be forked from this process: it computes in one thread, and no GPU is visible.

    A fork copies only the thread that calls it. OpenMP would wait in the copy for threads that it has started before,
    and CUDA cannot be used in the copy of a process that has used it.
    """
    return torch.get_num_threads() == 1 and torch.cuda.device_count() == 0


def fork(function: Callable[..., object], *args: object, daemon: bool = False) -> ForkProcess:
    """Run ``function(*args)`` in a fork of this process, which has loaded numba's compiler for all its forks."""
    from fullgnn.kernels.support.vectors import load_compiler  # imports numba

    load_compiler()
    process = multiprocessing.get_context("fork").Process(target=function, args=args, daemon=daemon)
    process.start()
    return process


def fork_workers(function: Callable[..., object], *args: object, nproc: int, runtime: RuntimeConfig) -> None:
    """Run ``function(*args)`` in ``nproc`` forks of this process, as ranks, and wait for them.

    A forked rank has imported everything already, which saves seconds. ``can_fork`` tells whether this is possible.
    The ranks find each other through a file: a store on a port would need a thread of this process, and a fork at a
    moment when that thread holds a lock of the C library, say to look up a host name, would wait for the lock forever.

    Raises: as ``run_ranks``.
    """

    def start(variables: dict[str, str]) -> Rank:
        process = fork(_rank, variables, function, args)
        assert process.pid is not None
        return Rank(process.pid, lambda: process.exitcode)

    run_ranks(start, nproc, runtime)


def _rank(variables: dict[str, str], function: Callable[..., object], args: tuple[object, ...]) -> None:
    """Run ``function(*args)`` as a new process would: signals end it, and a bug is reported with its traceback."""
    use_default_handlers()
    os.environ |= variables
    end_with_launcher()
    try:
        function(*args)
    except Exception as error:
        report_bug(error)
        traceback.print_exc()
        end_process(1)
