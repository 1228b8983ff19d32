"""The process of one item: it runs the item's module and sends what it finds to the runner, an event a result.

A module has a function ``run(task, report)`` of several cases. ``report.item`` runs a case; if the case raises, the
reason is reported and the next case runs. If a case kills this process, or takes longer than its limit, the cases after
it are lost.
"""

import math
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch

from fullgnn.errors import UnsupportedError, message_of, reason_of
from fullgnn.kernels.support import gpu, tuning
from fullgnn.telemetry.machine import gpu_facts

T = TypeVar("T")

_PACKAGES = {"hydra": "hydra-core", "omegaconf": "hydra-core"}


class Budget:
    """Seconds that something may take, from now on: what does not fit is left out, so that a run ends on time.

    It may be sent to another process of this machine, whose clock is the same.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.seconds, self._clock = seconds, clock
        self._begin = clock()

    @property
    def elapsed(self) -> float:
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.elapsed)

    def allows(self, predicted_s: float) -> bool:
        return predicted_s <= self.left

    def part(self, share: float, reserved_s: float = 0.0, most_s: float = float("inf")) -> "Budget":
        """The budget of a step: a share of what is left beyond ``reserved_s``, at most ``most_s``."""
        return Budget(min(most_s, share * max(0.0, self.left - reserved_s)), self._clock)


@dataclass(frozen=True)
class Task:
    """An item: one process, which runs one module."""

    module: str
    seconds: float  # for the item, including the start of its process
    toy: bool  # a CPU, Triton's interpreter and tiny sizes
    arguments: dict[str, Any] = field(default_factory=dict)
    name: str = ""  # as the record has it; several items may share one

    @property
    def device(self) -> torch.device:
        return torch.device("cpu") if self.toy else torch.device("cuda", 0)


class Report:
    """The way back to the record. All values are JSON."""

    def __init__(self, pipe: Any, budget: Budget, toy: bool):
        self._send, self.budget, self._toy = pipe.send, budget, toy

    def put(self, path: list[str], value: Any) -> None:
        """Set the leaf at ``path`` of the record."""
        self._send({"put": path, "value": value})

    def add(self, path: list[str], value: Any) -> None:
        """Append to the list at ``path`` of the record."""
        self._send({"add": path, "value": value})

    def item(self, name: str, run: Callable[[], T], limit_s: float = 60.0, predicted_s: float = 1.0) -> T | None:
        """What ``run`` returns; None if it raised or if the time that is left is too short for it.

        Args:
            limit_s: time after which SIGALRM ends this process.
            predicted_s: what it will take at least.
        """
        if not self.budget.allows(predicted_s):
            self._send({"item": name, "state": "left out", "reason": f"{self.budget.left:.0f} s are left"})
            return None
        self._send({"item": name, "state": "begun", "limit_s": limit_s})
        begin = time.monotonic()
        signal.alarm(math.ceil(limit_s))
        try:
            result = run()
            if not self._toy:
                torch.cuda.synchronize()
        except UnsupportedError as error:
            self.missing(name, message_of(error))
            return None
        except Exception as error:  # of any kind: it is reported, and the next case goes on
            self._send({"item": name, "state": "failed", "reason": reason_of(error), "trace": _trace(error)})
            if not self._toy:
                torch.cuda.empty_cache()
                torch.cuda.synchronize()  # raises, and so ends this process, if the GPU can no longer be used
            return None
        finally:
            signal.alarm(0)
        self._send({"item": name, "state": "done", "took_s": round(time.monotonic() - begin, 3)})
        return result

    def missing(self, name: str, reason: str) -> None:
        """Say that something cannot be measured here."""
        self._send({"item": name, "state": "missing", "reason": reason})


def _trace(error: BaseException) -> list[str]:
    """The innermost lines of ``error``."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}: {frame.line}"[:200] for frame in frames]


def serve(pipe: Any, task: Task, budget: Budget, tuning_file: str | None) -> None:
    """Run the task, and send what it reports through ``pipe``.

    Args:
        budget: of the item; it began when this process was started.
        tuning_file: constants for the kernels; None: those of this GPU.
    """
    os.setsid()  # it is ended with what it starts
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.filterwarnings("ignore", message="Sparse")  # "beta state"
    torch.manual_seed(0)
    gpu.INTERPRETED = task.toy
    report = Report(pipe, budget, task.toy)
    with suppress(BrokenPipeError):  # the command that started this process has ended
        if not task.toy:
            torch.cuda.set_device(task.device)
            report.put(["gpu"], gpu_facts(task.device))
        if tuning_file is not None:
            tuning.use(tuning.read_tuning(Path(tuning_file)))
        try:
            module = import_module(task.module)
        except ModuleNotFoundError as error:
            library = (error.name or "").partition(".")[0]
            package = _PACKAGES.get(library, library)
            report.missing(task.module.rpartition(".")[2], f"{package} is not installed: pip install {package}")
        else:
            module.run(task, report)
    os._exit(0)  # all is sent; libraries that hang as they end cost no time
