"""Run items, each in a process with a time limit, and put what they report into the record as it comes."""

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from fullgnn.bench.gpu.record import Record
from fullgnn.bench.gpu.worker import Budget, Task, serve
from fullgnn.bench.process import Child

START_S = 6.0
"""Time that a process needs before its first case: an item with less time is left out."""

_GRACE_S = 3.0


@dataclass(eq=False)
class _Running:
    name: str
    child: Child
    budget: Budget
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
                wait([item.child.pipe for item in running], min((item.budget.left for item in running), default=0.0))
                running = [item for item in running if self._follow(item)]
        finally:
            for item in running:
                item.child.kill()
                self._read(item)

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
        child = Child(serve, task, Budget(seconds), self._tuning)
        self._say(f"{task.name}: begun, {seconds:.0f} s")
        return [_Running(task.name, child, Budget(seconds + _GRACE_S))]

    def _follow(self, item: _Running) -> bool:
        """Read what is new, and end a process whose time is over; whether the process is still running."""
        over = item.budget.left == 0
        ended = self._read(item) or over
        if ended:
            status = item.child.status(0 if over else _GRACE_S)
            item.child.kill()
            self._note_end(item, status)
        self.record.write()
        return not ended

    def _read(self, item: _Running) -> bool:
        """Put new results into the record; whether the process has ended, and no more will come."""
        try:
            while item.child.pipe.poll():
                event = item.child.pipe.recv()
                if "put" in event:
                    self.record.put(event["put"], event["value"])
                elif "add" in event:
                    self.record.add(event["add"], event["value"])
                elif event["state"] == "begun":
                    item.case, item.limit_s = event["item"], event["limit_s"]
                else:
                    item.case = None
                    self.note(item.name, **event)
        except (EOFError, OSError):
            return True
        return False

    def _note_end(self, item: _Running, status: int | None) -> None:
        """Note why a process ended, unless it has done all that it should; ``status`` None: it would still run."""
        if status is None:
            self.note(item.name, item.case, "left out", f"its time of {item.budget.seconds - _GRACE_S:.0f} s was over")
        elif status == -signal.SIGALRM:
            self.note(item.name, item.case, "failed", f"it hung: stopped after {item.limit_s:.0f} s")
        elif status:
            name = signal.Signals(-status).name if status < 0 else f"status {status}"
            self.note(item.name, item.case, "failed", f"its process ended with {name}")
