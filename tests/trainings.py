"""Real trainings on two ranks that are still running: for tests of signals, of stopped and of killed processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import OWN, Forked, start_command, torchrun

# The command as it runs where a GPU is visible: it starts new processes, not forks.
LAUNCHED = [
    sys.executable,
    "-c",
    "import fullgnn.engine.command as command, fullgnn.train as train; command.can_fork = lambda: False; train.main()",
]
TORCHRUN = [*torchrun(2), "-m", "fullgnn.train"]
SLACK = 2
"""A test allows this many times the seconds that users are promised: it shares its machine with other tests."""
WAYS = {"forked": OWN, "launched": LAUNCHED, "torchrun": TORCHRUN}
NEW_PROCESSES = pytest.mark.sample(12)
"""For the ways that start new processes, each of which imports torch for seconds; a fork is tested at each commit."""
EACH_WAY = ["forked", pytest.param("launched", marks=NEW_PROCESSES), pytest.param("torchrun", marks=NEW_PROCESSES)]


@dataclass(frozen=True)
class Training:
    """A training in progress, on two ranks."""

    process: Forked | subprocess.Popen[bytes]
    run_dir: Path
    log: Path

    @property
    def ranks(self) -> list[int]:
        """Process ids, by rank."""
        return children(self.process.pid)

    @property
    def output(self) -> str:
        return self.log.read_text()


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has started, in the order of their ids."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for file in tasks for child in file.read_text().split())


@contextmanager
def training(
    folder: Path,
    command: list[str],
    *arguments: str,
    job: str = "",
    first: Callable[[], object] | None = None,
    num_epochs: int = 1,
) -> Iterator[Training]:
    """Start a training and wait for its first epochs. At the end of the block nothing of it runs any more.

    Args:
        job: folder, below that of the run, in which the epochs are written.
        first: called in the process of the command before it.
        num_epochs: 0: wait for its ranks only.
    """
    run_dir = folder / "run"
    arguments = (*arguments, "runtime.nproc=2", "runtime.device=cpu", "dataset=karate", f"run_dir={run_dir}")
    process = start_command(command, *arguments, cwd=folder, log=folder / "log", first=first)
    running = Training(process, run_dir, folder / "log")
    ranks: list[int] = []
    try:
        epochs = run_dir / job / "epochs.jsonl"
        wait(lambda: process.poll() is not None or len(running.ranks) == 2, 120)
        wait(lambda: process.poll() is not None or num_lines(epochs) >= num_epochs, 120)
        assert process.poll() is None, running.output
        ranks = running.ranks
        assert len(ranks) == 2
        yield running
    finally:
        process.kill()
        process.wait()
        for pid in ranks:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


def num_lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait(condition: Callable[[], object], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


LONG = "train.epochs=10000000"
