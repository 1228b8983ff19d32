"""Cases and other processes that raise, die or hang are reported, and what comes after them runs all the same."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fullgnn.bench.harness import Budget, Cases, Measurement, Method, Missing, Outcome
from fullgnn.bench.process import finished, run_or_raise, worker_with
from fullgnn.distributed.worker import WorkerLost
from fullgnn.errors import UnsupportedError
from fullgnn.telemetry.timing import Times
from tests.trainings import is_running, wait

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

CPU = torch.device("cpu")


class Answering:
    def double(self, number: int) -> int:
        return 2 * number

    def raises(self) -> None:
        raise ZeroDivisionError("of course")

    def dies(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def answering(fails: bool) -> Iterator[Answering]:
    if fails:
        raise OSError("cannot be made")
    yield Answering()


def test_a_worker_answers_until_it_dies() -> None:
    worker = worker_with({}, answering, False)
    assert worker.call(Answering.double, 21) == 42
    with pytest.raises(ZeroDivisionError, match="of course"):
        worker.call(Answering.raises)
    assert worker.call(Answering.double, 4) == 8
    with pytest.raises(WorkerLost, match="ended with status -9"):
        worker.call(Answering.dies)
    worker.close()
    with pytest.raises(UnsupportedError, match="OSError: cannot be made"):
        worker_with({}, answering, True)


def test_parts_of_a_budget_are_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("fullgnn.bench.harness.time", SimpleNamespace(monotonic=lambda: now[0]))
    budget = Budget(100)
    now[0] = 20
    assert budget.left == 80 and budget.elapsed == 20
    assert budget.part(0.5, reserved_s=20) == 30
    now[0] = 130
    assert budget.left == 0 == budget.part(1.0)


def test_a_case_costs_itself_alone() -> None:
    cases = Cases(100, CPU)
    measured = Measurement(Method("works", "ours", None), [], Times([1.0]), [])
    assert cases.run("works", lambda: measured, {}).measurements == [measured]
    assert cases.run("works", lambda: Outcome(problem={"nnz": 7}), {}).problem == {"nnz": 7}
    raised = cases.run("raises", lambda: 1 / 0, {"width": 8})
    assert raised == Outcome(missing=[Missing("raises", "ZeroDivisionError: division by zero", {"width": 8})])
    (left_out,) = cases.run("long", lambda: measured, {}, predicted_s=1e6).missing
    assert left_out.reason.startswith("left out: ") and left_out.reason.endswith(" s are left")


def test_a_case_that_hangs_ends_its_process() -> None:
    program = "import time, torch; from fullgnn.bench.harness import Cases; "
    program += "Cases(100, torch.device('cpu')).run('hangs', lambda: time.sleep(600), {}, limit_s=1)"
    assert finished([sys.executable, "-c", program], 100)[2] == -signal.SIGALRM


def test_a_command_over_its_time_is_ended_with_its_children(tmp_path: Path, monkeypatch: Any) -> None:
    """It is looked at meanwhile, and has not the variables of a rank."""
    looks: list[int] = []
    program = "import os, subprocess; print('RANK' in os.environ)\n"
    program += "print(subprocess.Popen(['sleep', '600']).pid, file=open('pid', 'w'), flush=True); os.wait()"
    command = [sys.executable, "-c", program]

    with pytest.raises(subprocess.TimeoutExpired):
        finished(command, 3, folder=tmp_path, look=lambda: looks.append(1))
    assert len(looks) >= 3
    sleeper = int((tmp_path / "pid").read_text())
    wait(lambda: not is_running(sleeper), 10)  # it has been killed, which may take a moment
    monkeypatch.setenv("RANK", "3")
    assert finished([sys.executable, "-c", "import os; print('RANK' in os.environ)"], 60)[0] == "False\n"


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="status 3: the reason"):
        run_or_raise([sys.executable, "-c", "import sys; print('the reason', file=sys.stderr); sys.exit(3)"], 60)
