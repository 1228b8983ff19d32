"""A job whose items fail in every way."""

import os
import signal
import time

from fullgnn.bench.gpu.worker import Report, Task


def run(task: Task, report: Report) -> None:
    """The items named in the task: each does what its name says."""
    report.item("first", lambda: report.add(["starts"], len(task.done)), always=True)
    for name in task.arguments["items"]:
        report.item(
            name, lambda name=name: _WAYS[name](report), limit_s=1.0, predicted_s=1e6 if name == "long" else 0.0
        )


def _dies(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hangs(report: Report) -> None:
    time.sleep(600)


def _raises(report: Report) -> None:
    raise ZeroDivisionError("of course")


_WAYS = {
    "dies": _dies,
    "hangs": _hangs,
    "raises": _raises,
    "long": _hangs,
    "works": lambda report: report.put(["found"], 7),
}
