"""The real command: a job of two processes with single-process methods beside it, and the message of a user error."""

import sys
from pathlib import Path

import pytest

from tests.bench.operations import SHORT, read
from tests.commands import run_command

BENCH = [sys.executable, "-m", "fullgnn.bench"]


@pytest.mark.sample(4)
def test_an_epoch_on_two_processes_beside_one(tmp_path: Path) -> None:
    arguments = ["op=epoch", "nproc=2", "presets=[default]", "peers=[torch]", "alone=[]", "alone_threads=[1]"]
    arguments += ["separate=true", "out=here"]
    done = run_command(BENCH, *SHORT, *arguments, cwd=tmp_path)
    assert done.status == 0, done.output
    record = read(tmp_path / "here")
    ran = {(row["method"], row["processes"]) for row in record["measurements"]}
    assert ran >= {("default", 2), ("torch CSR A(HW)", 1)}
    assert all(row["details"]["loss_error"] < 1e-5 for row in record["measurements"])
    assert all(50 < row["details"]["peak_mb"] < 5000 for row in record["measurements"])
    assert record["command"].startswith("python -m fullgnn.bench graph=tiny")
    environment = record["environment"]
    assert environment["MALLOC_MMAP_THRESHOLD_"] == "8000000000"
    assert environment["OMP_NUM_THREADS"] == environment["NUMBA_NUM_THREADS"] == "1"
    assert environment["torch_threads"] == 1
    assert (tmp_path / "here" / "table.md").read_text() in done.output


def test_a_mistake_ends_with_one_line(tmp_path: Path) -> None:
    done = run_command(BENCH, "graph=tiny", "round=3", cwd=tmp_path)
    assert (done.status, done.output) == (1, "error: unknown key round: did you mean rounds?\n")
    assert not list(tmp_path.iterdir())
