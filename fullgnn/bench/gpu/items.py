"""Run items, each in a process with a time limit, and put what they report into the record as it comes."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

from fullgnn.bench.gpu.budget import Budget
from fullgnn.bench.gpu.record import Record
from fullgnn.bench.gpu.worker import Task

START_S = 6.0
"""Time that a process needs before its first case: an item with less time is left out."""

_GRACE_S = 3.0
_POLL_S = 0.1
_ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment of a process, where the user has set no other values. Collectives then stay on this machine."""


@dataclass(eq=False)
class _Running:
    name: str
    process: subprocess.Popen[bytes]
    results: IO[str]  # the file to which the process appends
    budget: Budget
    unread: str = ""  # the begin of a line whose end is not written yet
    case: str | None = None  # under way
    limit_s: float = 0.0  # of that case


class Runner:
    """Runs items and puts what they report into the record. Nothing that an item does ends the runner.

    Args:
        tuning: a file with constants for the kernels of all items; None: those of this GPU.
    """

    def __init__(self, record: Record, budget: Budget, say: Callable[[str], None], tuning: str | None = None):
        self.record, self.budget, self._say, self._tuning = record, budget, say, tuning

    def run(self, tasks: Iterable[Task], parallel: int = 1) -> None:
        """Run the items in their order, ``parallel`` at a time. An item without time is left out."""
        waiting, running = list(tasks), list[_Running]()
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    running += self._start(waiting.pop(0))
                time.sleep(_POLL_S if running else 0)
                running = [one for one in running if self._follow(one)]
        finally:
            for one in running:
                _kill(one.process)
                self._read(one)

    def note(self, job: str, item: str | None, state: str, reason: str | None = None, **more: Any) -> None:
        """Put what became of a case, or of a whole item (None), into the record, and say it on the terminal."""
        entry = {"job": job, "item": item, "state": state, "reason": reason, **more}
        self.record.add(["items"], {key: value for key, value in entry.items() if value is not None})
        if item is not None and state == "left out":
            return  # once it begins there are many; the page names them
        took = f" ({more['took_s']:.1f} s)" if "took_s" in more else ""
        self._say(f"{job}: {item or 'all of it'} {state}{took}{': ' + reason if reason else ''}")

    def _start(self, task: Task) -> list[_Running]:
        seconds = min(task.seconds, self.budget.left - _GRACE_S)
        if seconds < START_S:
            self.note(task.name, None, "left out", f"{max(0.0, seconds):.0f} s are left")
            return []
        task = replace(task, seconds=seconds, begun=time.time(), tuning=self._tuning)
        results = tempfile.NamedTemporaryFile("r", prefix="fullgnn-", suffix=".jsonl")  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, "-m", "fullgnn.bench.gpu.worker", json.dumps(asdict(task)), results.name],
            env={**_ENVIRONMENT, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._say(f"{task.name}: begun, {seconds:.0f} s")
        return [_Running(task.name, process, results, Budget(seconds + _GRACE_S))]

    def _follow(self, one: _Running) -> bool:
        """Read what is new, and end a process whose time is over; whether the process is still running."""
        over = one.budget.left == 0
        status = one.process.poll()
        ended = over or status is not None
        if ended:
            _kill(one.process)
        if self._read(one) or ended:
            self._note_end(one, status, over)
            self.record.write()
        return not ended

    def _read(self, one: _Running) -> bool:
        """Put new results into the record; whether there were any."""
        *lines, one.unread = (one.unread + one.results.read()).split("\n")
        for event in map(json.loads, lines):
            if "put" in event:
                self.record.put(event["put"], event["value"])
            elif "add" in event:
                self.record.add(event["add"], event["value"])
            elif event["state"] == "begun":
                one.case, one.limit_s = event["item"], event["limit_s"]
            else:
                one.case = None
                self.note(one.name, **event)
        return bool(lines)

    def _note_end(self, one: _Running, status: int | None, over: bool) -> None:
        """Note why a process ended, unless it is still running or has done all that it should."""
        if status == -signal.SIGALRM:
            self.note(one.name, one.case, "failed", f"it hung: stopped after {one.limit_s:.0f} s")
        elif status:
            name = signal.Signals(-status).name if status < 0 else f"status {status}"
            self.note(one.name, one.case, "failed", f"its process ended with {name}")
        elif status is None and over:
            self.note(one.name, one.case, "left out", f"its time of {one.budget.seconds - _GRACE_S:.0f} s was over")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_S)
