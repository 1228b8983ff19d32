"""The child's side of an item: run jobs in this process, and append what they find to a file, one JSON line a result.

A job is ``run(task, report)`` of a module. It consists of cases, ``report.item``: a case that raises is reported and
the next one goes on. A case that kills this process, or takes longer than its limit, costs the cases behind it.
"""

import json
import math
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO, TypeVar

import torch

from fullgnn.bench.gpu.budget import Budget
from fullgnn.errors import UnsupportedError
from fullgnn.kernels.support import gpu, tuning

T = TypeVar("T")

_PACKAGES = {"hydra": "hydra-core", "omegaconf": "hydra-core"}


@dataclass(frozen=True)
class Task:
    """One call of a job."""

    module: str
    seconds: float  # for the job, including the start of its process
    toy: bool  # a CPU, Triton's interpreter and tiny sizes
    arguments: dict[str, Any] = field(default_factory=dict)
    begun: float = 0.0  # time.time() when its process was started; 0: there is no process for it
    tuning: str | None = None  # a file with the kernels' constants

    @property
    def device(self) -> torch.device:
        return torch.device("cpu") if self.toy else torch.device("cuda", 0)


class Report:
    """The way back to the record. All values are JSON."""

    def __init__(self, task: Task, stream: TextIO):
        self._toy, self._stream, self._parent = task.toy, stream, os.getppid()
        self.budget = Budget(task.seconds - (time.time() - task.begun if task.begun else 0.0))

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
        if os.getppid() != self._parent:
            sys.exit("the command that started this process has ended")
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
            self.missing(name, " ".join(str(error).split()))
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

    def _send(self, event: dict[str, Any]) -> None:
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()


def reason_of(error: BaseException) -> str:
    """One line: the kind of ``error`` and its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


def _trace(error: BaseException) -> list[str]:
    """The innermost lines of ``error``."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}: {frame.line}"[:200] for frame in frames]


def as_argument(tasks: list[Task]) -> str:
    return json.dumps([asdict(task) for task in tasks])


def main(argument: str, file: str) -> None:
    """Run the tasks that ``as_argument`` wrote, one after the other, and append what they report to ``file``."""
    tasks = [Task(**one) for one in json.loads(argument)]
    device, toy = tasks[0].device, tasks[0].toy
    warnings.filterwarnings("ignore", message="Sparse")  # "beta state"
    torch.manual_seed(0)
    gpu.INTERPRETED = toy
    with open(file, "a") as stream:
        report = Report(tasks[0], stream)
        if not toy:
            torch.cuda.set_device(device)
            report.put(["gpu"], describe(device))
        if tasks[0].tuning is not None:
            tuning.use(tuning.read_tuning(Path(tasks[0].tuning)))
        for task in tasks:
            try:
                job = import_module(task.module)
            except ModuleNotFoundError as error:
                library = (error.name or "").partition(".")[0]
                package = _PACKAGES.get(library, library)
                report.missing(task.module.rpartition(".")[2], f"{package} is not installed: pip install {package}")
            else:
                job.run(task, report)
    os._exit(0)  # all is written; libraries that hang as they end cost no time


def describe(device: torch.device) -> dict[str, Any]:
    """The GPU, as the record has it."""
    known = torch.cuda.get_device_properties(device)
    return {
        "name": known.name,
        "memory_bytes": known.total_memory,
        "l2_bytes": known.L2_cache_size,
        "num_multiprocessors": known.multi_processor_count,
        "capability": f"{known.major}.{known.minor}",
    }
