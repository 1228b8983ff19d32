"""One job in a process of its own: it takes its task from the command line and reports through a pipe, a line a result.

A job is a list of items. An item that raises is reported, and the next one goes on; after a fault of the GPU, which
leaves this process unable to use it, the process ends, and ``supervise.py`` starts another one for the rest.
"""

import json
import os
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
from fullgnn.kernels.support import gpu, tuning

T = TypeVar("T")

GPU_IS_LOST = 17
"""Exit status of a worker whose GPU context is broken."""


@dataclass(frozen=True)
class Task:
    """What a worker is told."""

    module: str  # whose ``run(task, report)`` is the job
    seconds: float  # for all of it, its start included
    toy: bool  # a CPU, Triton's interpreter and tiny sizes
    arguments: dict[str, Any] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)  # items that an earlier worker finished or died of
    deadly: list[str] = field(default_factory=list)  # those that it died of
    tuning: str | None = None  # a file with the kernels' constants

    begun: float = 0.0  # time.time(), when its worker was started; 0: it has not been

    def ended_by(self, name: str) -> bool:
        """Whether an item of the contestant ``name`` has ended a worker: there is no use in another one."""
        return any(item.startswith(f"{name}, ") for item in self.deadly)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu") if self.toy else torch.device("cuda", 0)


class Report:
    """The way back to the record. All that it is told is JSON."""

    def __init__(self, task: Task, stream: TextIO):
        self._task, self._stream = task, stream
        self.budget = Budget(task.seconds - (time.time() - task.begun if task.begun else 0.0))

    def put(self, path: list[str], value: Any) -> None:
        self._send({"put": path, "value": value})

    def add(self, path: list[str], value: Any) -> None:
        self._send({"add": path, "value": value})

    def item(
        self, name: str, run: Callable[[], T], limit_s: float = 60.0, predicted_s: float = 1.0, always: bool = False
    ) -> T | None:
        """What ``run`` returns; None where it raised, was done before, or does not fit the time that is left.

        Args:
            limit_s: after which the worker is stopped.
            predicted_s: what it will take at least.
            always: run it again in a worker that takes over from another.
        """
        if name in self._task.deadly or (name in self._task.done and not always):
            return None
        if not self.budget.allows(predicted_s):
            self._send({"item": name, "state": "left out", "reason": f"{self.budget.left:.0f} s are left"})
            return None
        self._send({"item": name, "state": "begun", "limit_s": limit_s})
        begin = time.monotonic()
        try:
            result = run()
            if not self._task.toy:
                torch.cuda.synchronize()
        except Exception as error:  # of any kind: it is reported, the others go on
            self._send({"item": name, "state": "failed", "reason": reason_of(error), "trace": _trace(error)})
            self._stop_if_lost()
            return None
        self._send({"item": name, "state": "done", "took_s": round(time.monotonic() - begin, 3)})
        return result

    def missing(self, name: str, reason: str) -> None:
        """Say of something that it is not here to be measured."""
        if name not in self._task.done:
            self._send({"item": name, "state": "missing", "reason": reason})

    def _stop_if_lost(self) -> None:
        if self._task.toy:
            return
        try:
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            torch.zeros(1, device=self._task.device).item()
        except Exception:
            self._stream.flush()
            os._exit(GPU_IS_LOST)

    def _send(self, event: dict[str, Any]) -> None:
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()


def reason_of(error: BaseException) -> str:
    """One line: the kind of ``error`` and what it says."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


def _trace(error: BaseException) -> list[str]:
    """Its innermost lines."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}: {frame.line}"[:200] for frame in frames]


def as_argument(task: Task) -> str:
    return json.dumps(asdict(task))


def main(argument: str, descriptor: int) -> None:
    """Run the task that ``as_argument`` wrote, and report to the open file ``descriptor``."""
    task = Task(**json.loads(argument))
    sys.stdout = sys.stderr  # a library that prints must not
    warnings.filterwarnings("ignore", message="Sparse")  # "beta state"
    torch.manual_seed(0)
    gpu.INTERPRETED = task.toy
    with os.fdopen(descriptor, "w") as stream:
        report = Report(task, stream)
        if not task.toy:
            torch.cuda.set_device(task.device)
            report.put(["gpu"], describe(task.device))
        if task.tuning is not None:
            tuning.use(tuning.read_tuning(Path(task.tuning)))
        import_module(task.module).run(task, report)


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
