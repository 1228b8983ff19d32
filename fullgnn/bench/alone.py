"""Single-process methods beside a job of several: each thread count in a process of its own, which rank 0 commands.

The process is a job of one rank, so that ours runs in it as it always does; it sleeps on a pipe until it is told to run
a method once, and rank 0 sleeps meanwhile. The time is taken there.
"""

import multiprocessing
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fullgnn.bench.config import BenchConfig, run_config
from fullgnn.bench.environment import environment, variables
from fullgnn.bench.harness import Method, Missing, reason_of
from fullgnn.distributed import World, init_world
from fullgnn.errors import UnsupportedError
from fullgnn.telemetry.logger import setup_logging

Found = tuple[list[Method], list[Missing]]
Build = Callable[[BenchConfig, World], Found]


def config_alone(cfg: BenchConfig, threads: int) -> BenchConfig:
    """What of ``cfg`` a process with ``threads`` threads runs by itself."""
    presets = cfg.presets if cfg.alone is None else cfg.alone
    return replace(cfg, nproc=1, threads=threads, presets=presets, alone=None, alone_threads=None)


class Alone:
    """A process with ``threads`` threads that holds the methods of ``build``, a function of a module."""

    def __init__(self, build: Build, cfg: BenchConfig, threads: int):
        cfg = config_alone(cfg, threads)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, build, cfg), daemon=True)
        with environment({**variables(cfg, 1), **_job_of_one()}):
            self._process.start()
        theirs.close()
        descriptions, self.missing = self._answer()
        self.methods = [Method(run=self._runner(number), **kept) for number, kept in enumerate(descriptions)]

    def stop(self) -> None:
        self._pipe.close()
        self._process.join(timeout=10)

    def _runner(self, number: int) -> Callable[[], tuple[float, float | None]]:
        def run() -> tuple[float, float | None]:
            self._pipe.send(number)
            return self._answer()

        return run

    def _answer(self) -> Any:
        try:
            ok, answer = self._pipe.recv()
        except EOFError:
            self._process.join()
            ok, answer = False, f"its process ended with status {self._process.exitcode}"
        if not ok:
            raise UnsupportedError(answer)
        return answer


def _serve(pipe: Any, build: Build, cfg: BenchConfig) -> None:
    setup_logging(0)
    try:
        with init_world(run_config(cfg).runtime) as world:
            methods, missing = build(cfg, world)
            kept = ("name", "kind", "processes", "threads", "case", "details")
            pipe.send((True, ([{key: getattr(method, key) for key in kept} for method in methods], missing)))
            while True:
                number = pipe.recv()
                try:
                    pipe.send((True, methods[number].run()))
                except Exception as error:
                    pipe.send((False, reason_of(error)))
    except EOFError:  # rank 0 is done
        return
    except Exception as error:
        pipe.send((False, reason_of(error)))


def _job_of_one() -> dict[str, str | None]:
    """torchrun's variables for a job of one rank, apart from the job that this process may be in."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    ours = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    elastic = {key: None for key in os.environ if key.startswith("TORCHELASTIC_")}
    return {**elastic, **ours, "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
