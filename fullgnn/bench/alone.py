"""Single-process methods beside a job of several: rank 0 starts one more process for each number of threads.

Such a process is a job of one rank, in which our training runs as it always does. It sleeps on a pipe until it is told
to run a method once, and rank 0 sleeps meanwhile. The process takes the time itself.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from fullgnn.bench.config import BenchConfig, run_config
from fullgnn.bench.environment import variables
from fullgnn.bench.harness import Method, Missing, attempt
from fullgnn.bench.process import Child
from fullgnn.distributed import World, world_of_one
from fullgnn.distributed.launch import environment
from fullgnn.errors import UnsupportedError
from fullgnn.telemetry.log import setup_logging
from fullgnn.telemetry.machine import forget_peak_process_bytes, peak_process_bytes

Found = tuple[list[Method], list[Missing]]
Build = Callable[[BenchConfig, World], Found]


def config_alone(cfg: BenchConfig, threads: int) -> BenchConfig:
    """The part of ``cfg`` that a process with ``threads`` threads runs by itself."""
    presets = cfg.presets if cfg.alone is None else cfg.alone
    return replace(cfg, nproc=1, threads=threads, presets=presets, alone=None, alone_threads=None)


class Alone(Child):
    """A process with ``threads`` threads that holds the methods of ``build``, a function of a module.

    Raises:
        UnsupportedError: ``build`` failed, or the process ended.
    """

    def __init__(self, build: Build, cfg: BenchConfig, threads: int):
        cfg = config_alone(cfg, threads)
        with environment(variables(cfg, 1)):
            super().__init__(_serve, build, cfg)
        methods, self.missing = self._answer()
        self.methods = [replace(method, run=partial(self._run, number)) for number, method in enumerate(methods)]

    def stop(self) -> int | None:
        """End the process.

        Returns:
            its peak memory since its methods were set up, in bytes; None if the process has ended already.
        """
        peak_bytes = None
        with suppress(OSError, UnsupportedError):
            peak_bytes = self._run(None)
        self.pipe.close()
        self.status(timeout_s=10)
        return peak_bytes

    def _run(self, number: int | None) -> Any:
        self.pipe.send(number)
        return self._answer()

    def _answer(self) -> Any:
        try:
            answer, reason = self.pipe.recv()
        except EOFError:
            reason = f"its process ended with status {self.status()}"
        if reason is not None:
            raise UnsupportedError(reason)
        return answer


def _serve(pipe: Any, build: Build, cfg: BenchConfig) -> None:
    """The process: build the methods, then run the one whose number arrives until rank 0 closes the pipe.

    For None it answers the peak memory in bytes.
    """
    setup_logging(0)
    with suppress(EOFError), world_of_one(run_config(cfg).runtime) as world:
        found, _, reason = attempt(lambda: build(cfg, world))
        methods, missing = found or ([], [])
        pipe.send((([replace(method, run=None) for method in methods], missing), reason))
        forget_peak_process_bytes()
        while True:
            number = pipe.recv()
            answer, _, reason = attempt(peak_process_bytes if number is None else methods[number].run)
            pipe.send((answer, reason))
