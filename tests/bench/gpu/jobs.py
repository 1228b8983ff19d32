"""A job whose cases fail in every way."""

import os
import signal
import subprocess
import time
from functools import partial

import torch

from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.errors import UnsupportedError
from fullgnn.kernels.support.tuning import tuning_for


def run(task: Task, report: Report) -> None:
    """Run the cases that the task names; each case does what its name says."""
    report.item("first", lambda: report.add(["starts"], 1))
    for name in task.arguments["items"]:
        predicted_s, limit_s = (1e6 if name == "long" else 0.1), (60.0 if name in ("sleeps", "starts") else 1.0)
        report.item(name, partial(_WAYS[name], report), limit_s, predicted_s)


def _dies(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hangs(report: Report) -> None:
    time.sleep(600)


def _raises(report: Report) -> None:
    raise ZeroDivisionError("of course")


def _lacks(report: Report) -> None:
    raise UnsupportedError("no such library")


def _starts(report: Report) -> None:
    """Start a child process, and hang."""
    sleeper = subprocess.Popen(["sleep", "600"])
    report.put(["sleeper"], sleeper.pid)
    time.sleep(600)


def _constants(report: Report) -> None:
    report.put(["elements"], tuning_for(torch.device("cpu")).csr.general.elements)


_WAYS = {
    "constants": _constants,
    "dies": _dies,
    "hangs": _hangs,
    "lacks": _lacks,
    "starts": _starts,
    "sleeps": _hangs,
    "long": _hangs,
    "raises": _raises,
    "works": lambda report: report.put(["found"], 7),
}
