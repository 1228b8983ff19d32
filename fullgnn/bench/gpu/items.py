"""The parent's side of an item: one process with a time limit, whose results go into the record as they come."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from json import loads
from typing import IO, Any

from fullgnn.bench.gpu.budget import Budget
from fullgnn.bench.gpu.record import Record
from fullgnn.bench.gpu.worker import Task, as_argument

START_S = 6.0
"""Time that a process needs before its first case: an item with less time is left out."""

_GRACE_S = 3.0
_POLL_S = 0.1
_ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment of a process, where the user has set no other values. Collectives then stay on this machine."""


@dataclass(frozen=True)
class Item:
    """What one process does: its tasks, one after the other, in the seconds of the first."""

    name: str  # as the record has it; several items may share one
    tasks: list[Task]


@dataclass(eq=False)
class _Running:
    item: Item
    process: subprocess.Popen
    results: IO[str]  # what the process appends
    budget: Budget
    unread: str = ""
    case: str | None = None  # under way
    limit_s: float = 0.0  # of that case


class Runner:
    """Runs items and puts what they report into the record. Nothing that an item does ends the runner.

    Args:
        tuning: a file with constants for the kernels of all items; None: those of this GPU.
    """

    def __init__(self, record: Record, budget: Budget, say: Callable[[str], None], tuning: str | None = None):
        self._record, self._budget, self._say, self._tuning = record, budget, say, tuning

    def run(self, items: Iterable[Item], parallel: int = 1) -> None:
        """Run the items in their order, ``parallel`` at a time. An item without time is left out."""
        waiting, running = list(items), list[_Running]()
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    running += self._start(waiting.pop(0))
                time.sleep(_POLL_S if running else 0)
                for one in list(running):
                    over = one.budget.left == 0
                    status = one.process.poll()
                    if status is not None or over:
                        _kill(one.process)
                        running.remove(one)
                    if self._read(one) or one not in running:
                        self._note_end(one, status, over)
                        self._record.write()
        finally:
            for one in running:
                _kill(one.process)
                self._read(one)

    def missing(self, item: str, reason: str) -> None:
        """Say that an item cannot be run here."""
        self._note(item, None, "missing", reason)

    def _start(self, item: Item) -> list[_Running]:
        seconds = min(item.tasks[0].seconds, self._budget.left - _GRACE_S)
        if seconds < START_S:
            self._note(item.name, None, "left out", f"{max(0.0, seconds):.0f} s are left")
            return []
        tasks = [replace(task, seconds=seconds, begun=time.time(), tuning=self._tuning) for task in item.tasks]
        results = tempfile.NamedTemporaryFile("r", prefix="fullgnn-", suffix=".jsonl")
        process = subprocess.Popen(
            [sys.executable, "-m", "fullgnn.bench.gpu", "--item", as_argument(tasks), results.name],
            env={**_ENVIRONMENT, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._say(f"{item.name}: begun, {seconds:.0f} s")
        return [_Running(item, process, results, Budget(seconds + _GRACE_S))]

    def _read(self, one: _Running) -> bool:
        """Put new results into the record; whether there were any."""
        *lines, one.unread = (one.unread + one.results.read()).split("\n")
        for line in lines:
            event = loads(line)
            if "put" in event:
                self._record.put(event["put"], event["value"])
            elif "add" in event:
                self._record.add(event["add"], event["value"])
            elif event["state"] == "begun":
                one.case, one.limit_s = event["item"], event["limit_s"]
            else:
                one.case = None
                self._note(one.item.name, **event)
        return bool(lines)

    def _note_end(self, one: _Running, status: int | None, over: bool) -> None:
        """Note why a process ended, unless it is still running or has done all that it should."""
        if status == -signal.SIGALRM:
            self._note(one.item.name, one.case, "failed", f"it hung: stopped after {one.limit_s:.0f} s")
        elif status:
            name = signal.Signals(-status).name if status < 0 else f"status {status}"
            self._note(one.item.name, one.case, "failed", f"its process ended with {name}")
        elif status is None and over:
            reason = f"its time of {one.budget.seconds - _GRACE_S:.0f} s was over"
            self._note(one.item.name, one.case, "left out", reason)

    def _note(self, job: str, item: str | None, state: str, reason: str | None = None, **more: Any) -> None:
        """What became of a case, or of a whole item (None): in the record, and on the terminal."""
        entry = {"job": job, "item": item, "state": state, "reason": reason, **more}
        self._record.add(["items"], {key: value for key, value in entry.items() if value is not None})
        if item is not None and state == "left out":
            return  # once it begins there are many; the page names them
        took = f" ({more['took_s']:.1f} s)" if "took_s" in more else ""
        self._say(f"{job}: {item or 'all of it'} {state}{took}{': ' + reason if reason else ''}")


def _kill(process: subprocess.Popen) -> None:
    """End the process and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_S)
