"""Ranks for tests: the processes start once for each world size and then execute one function after another."""

import gc
import os
import socket
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fullgnn.distributed.worker import WorkerLost, answer_calls
from tests.commands import forked_worker

if TYPE_CHECKING:
    from fullgnn.distributed import World

TIMEOUT_S = 120


class Ranks:
    """``world_size`` processes on this machine that have joined one job; each call runs on all of them.

    Args:
        backend: ``gloo`` on the CPU, ``nccl`` with a GPU for each rank, or ``gloo-cuda``: ranks that share the GPUs.
    """

    def __init__(self, world_size: int, backend: str = "gloo"):
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
        of_job = world_size, port, backend
        self._workers = [forked_worker(_serve, rank, *of_job) for rank in range(world_size)]

    def __call__(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Results of ``function(world, *args)`` on every rank, in rank order.

        Raises:
            AssertionError: a rank raised, or did not answer in time. All processes have been stopped.
        """
        for worker in self._workers:
            worker.send((_guarded, (function, *args)))
        deadline = time.monotonic() + TIMEOUT_S
        results, failures = list[Any](), list[str]()
        for rank, worker in enumerate(self._workers):
            wait = max(0.0, deadline - time.monotonic()) if not failures else 2.0
            try:
                ok, value = worker.answer() if worker.connection.poll(wait) else (False, "no answer")
            except WorkerLost:
                ok, value = False, "died"
            (results if ok else failures).append(value if ok else f"rank {rank}: {value}")
        if failures:
            self.stop()
            raise AssertionError("\n".join(failures))
        return results

    @property
    def alive(self) -> bool:
        return all(worker.wait(0) is None for worker in self._workers)

    def stop(self) -> None:
        for worker in self._workers:
            worker.kill()


def _serve(pipe: Any, rank: int, world_size: int, port: int, backend: str) -> None:
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(world_size),
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
    )
    # There may be more ranks than cores. A thread that wakes up must not take the core from a thread that holds a lock
    # of gloo, because gloo's other threads would spin on that lock for their whole time slice.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    gc.freeze()  # the garbage collector need not scan the imported modules again and again

    from fullgnn.config import RuntimeConfig
    from fullgnn.distributed import init_world

    device = "cpu" if backend == "gloo" else "cuda"
    runtime = RuntimeConfig(None, device, backend.removesuffix("-cuda"), "float64", 1, TIMEOUT_S, None, "auto")
    with init_world(runtime) as world:
        answer_calls(pipe, world)


def _guarded(world: "World", function: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    """Whether ``function(world, *args)`` has returned, and what; or the traceback."""
    try:
        return True, function(world, *args)
    except BaseException:
        return False, traceback.format_exc()
