"""Workers and their results: started, watched, stopped when their time is over, and replaced where one died."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import IO, Any

from fullgnn.bench.gpu.budget import Budget
from fullgnn.bench.gpu.record import Record
from fullgnn.bench.gpu.worker import GPU_IS_LOST, Task, as_argument

START_S = 6.0
"""What a worker takes before its first item: below this it is not worth starting."""

_GRACE_S = 3.0
_POLL_S = 0.2
_MAX_DEATHS = 12  # of one job


@dataclass(eq=False)
class _Worker:
    name: str
    task: Task
    process: subprocess.Popen
    pipe: IO[bytes]
    budget: Budget
    unread: bytes = b""
    item: str | None = None  # under way
    item_budget: Budget = field(default_factory=lambda: Budget(float("inf")))
    done: list[str] = field(default_factory=list)


class Supervisor:
    """Runs jobs and puts what they report into the record; nothing that a job does ends it.

    Args:
        tuning: a file with constants for the kernels of all jobs; None: those of this GPU.
    """

    def __init__(self, record: Record, budget: Budget, say: Callable[[str], None], tuning: str | None = None):
        self._record, self._budget, self._say, self._tuning = record, budget, say, tuning
        self._workers: list[_Worker] = []

    def run(self, jobs: dict[str, Task], parallel: int = 1) -> None:
        """Run ``jobs``, named as in the record, ``parallel`` at a time, each in the seconds of its task."""
        waiting = list(jobs.items())
        try:
            while waiting or self._workers:
                while waiting and len(self._workers) < parallel:
                    self._start(*waiting.pop(0))
                self._listen()
        finally:
            self.stop()

    def missing(self, job: str, reason: str) -> None:
        """Say of a job that it is not here to be run."""
        self._note(job, None, "missing", reason)

    def stop(self) -> None:
        """End the workers that are left."""
        for worker in self._workers:
            _kill(worker.process)
            worker.pipe.close()
        self._workers.clear()

    def _start(self, name: str, task: Task) -> None:
        seconds = min(task.seconds, self._budget.left - _GRACE_S)
        if seconds < START_S:
            self._note(name, None, "left out", f"{max(0.0, seconds):.0f} s are left")
            return
        task = replace(task, seconds=seconds, begun=time.time(), tuning=self._tuning)
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "fullgnn.bench.gpu", "--worker", as_argument(task), str(writer)]
        process = subprocess.Popen(
            command,
            env={**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"},
            pass_fds=[writer],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(writer)
        os.set_blocking(reader, False)
        self._workers.append(_Worker(name, task, process, os.fdopen(reader, "rb", buffering=0), Budget(seconds)))
        self._say(f"{name}: begun, {seconds:.0f} s")

    def _listen(self) -> None:
        """Wait a moment for results, then end whoever is over time."""
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.pipe, selectors.EVENT_READ, worker)
            ready = [key.data for key, _ in selector.select(_POLL_S)] if self._workers else []
        ended = [worker for worker in ready if not self._read(worker)]
        for worker in list(self._workers):
            reason, over = None, worker.budget.elapsed > worker.budget.seconds + _GRACE_S
            if worker in ended:
                status = _status(worker.process)
                reason = None if status == 0 else _why(status)
            elif worker.item is not None and worker.item_budget.left == 0:
                reason = f"it hung: stopped after {worker.item_budget.seconds:.0f} s"
            elif not over:
                continue
            self._workers.remove(worker)
            _kill(worker.process)
            worker.pipe.close()
            if reason is not None:
                self._replace(worker, reason)
            elif over and worker not in ended:
                self._note(worker.name, worker.item, "left out", f"its time of {worker.budget.seconds:.0f} s was over")
        if ended or ready:
            self._record.write()

    def _replace(self, worker: _Worker, reason: str) -> None:
        """Note what a worker died of, and start another one for the items that are left."""
        done = [*(item for item in worker.task.done if item not in worker.done), *worker.done]
        if worker.item is not None:
            self._note(worker.name, worker.item, "failed", reason)
            done = [*done, worker.item]
        elif reason != _why(GPU_IS_LOST):  # that one has said so itself, of its last item
            self._note(worker.name, None, "failed", reason)
            return
        deadly = [*worker.task.deadly, done[-1]]
        if len(deadly) <= _MAX_DEATHS:
            seconds = worker.budget.left
            self._start(worker.name, replace(worker.task, done=done, deadly=deadly, seconds=seconds))

    def _read(self, worker: _Worker) -> bool:
        """Take what has arrived; False at the end of the pipe."""
        data = worker.pipe.read(1 << 16)
        if data is None:
            return True
        *lines, worker.unread = (worker.unread + data).split(b"\n")
        for line in lines:
            self._take(worker, json.loads(line))
        return bool(data)

    def _take(self, worker: _Worker, event: dict[str, Any]) -> None:
        if "put" in event:
            self._record.put(event["put"], event["value"])
        elif "add" in event:
            self._record.add(event["add"], event["value"])
        else:
            state, item = event["state"], event["item"]
            worker.item = item if state == "begun" else None
            worker.item_budget = Budget(event.get("limit_s", float("inf")))
            if state != "begun":
                worker.done = [*(other for other in worker.done if other != item), item]
                self._note(worker.name, **{key: event[key] for key in event})

    def _note(self, job: str, item: str | None, state: str, reason: str | None = None, **more: Any) -> None:
        """What became of an item (or of the job): in the record, and on the terminal."""
        entry = {"job": job, "item": item, "state": state, "reason": reason, **more}
        self._record.add(["items"], {key: value for key, value in entry.items() if value is not None})
        if item is not None and state == "left out":
            return  # once it begins there are many; the page names them
        took = f" ({more['took_s']:.1f} s)" if "took_s" in more else ""
        self._say(f"{job}: {item or 'job'} {state}{took}{': ' + reason if reason else ''}")


def _status(process: subprocess.Popen) -> int:
    """The exit status of a worker whose pipe has closed."""
    try:
        return process.wait(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        return 0  # it has said all, and hangs in its own end


def _why(status: int) -> str:
    if status == GPU_IS_LOST:
        return "the GPU could no longer be used by this process"
    return f"the worker ended with {signal.Signals(-status).name if status < 0 else f'status {status}'}"


def _kill(process: subprocess.Popen) -> None:
    """End the worker and what it started."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        begin = time.monotonic()
        while process.poll() is None and time.monotonic() - begin < _GRACE_S:
            time.sleep(0.02)
