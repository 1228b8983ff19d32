"""Sampled training as a command: its ranks, its files, its errors, and a worker that is killed."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.commands import run_command, start_command, torchrun
from tests.trainings import SLACK

COMMAND = [sys.executable, "-m", "fullgnn.train_minibatch"]
KEYS = ["dataset=karate", "sampler.fanouts=[4,3]", "loader.batch_size=6", "runtime.device=cpu"]


def losses(run_dir: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run_dir / "epochs.jsonl").read_text().splitlines()]


def test_torchrun_and_own_ranks_make_the_same_run(tmp_path: Path, every_case: bool) -> None:
    keys = [*KEYS, "train.epochs=3", "loader.num_workers=1"]
    own = run_command(COMMAND, *keys, "runtime.nproc=2", "run_dir=own", cwd=tmp_path)
    assert own.status == 0, own.output
    assert "evaluated on the full graph" in own.output
    assert len(losses(tmp_path / "own")) == 3
    if every_case:
        launched = run_command(torchrun(2), "-m", "fullgnn.train_minibatch", *keys, "run_dir=torchrun", cwd=tmp_path)
        assert launched.status == 0, launched.output
        assert losses(tmp_path / "own") == losses(tmp_path / "torchrun")
    record = json.loads((tmp_path / "own" / "record.json").read_text())
    assert record["sampling"]["num_batches"] > 1 and record["sampling"]["sampled_edges"] > 0
    assert record["metrics"].keys() >= {"val_accuracy", "test_accuracy"}


@pytest.mark.sample(2)
def test_a_sweep(tmp_path: Path) -> None:
    keys = ["dataset=karate", "loader.batch_size=6", "train.epochs=2", "model=gcn"]
    done = run_command([*COMMAND, "-m"], *keys, "loader.num_workers=0,1", "run_dir=sweep", cwd=tmp_path)
    assert done.status == 0, done.output
    assert losses(tmp_path / "sweep" / "0") == losses(tmp_path / "sweep" / "1")
    assert (tmp_path / "sweep" / "sweep.csv").is_file()


def test_a_wrong_key_is_one_line(tmp_path: Path) -> None:
    done = run_command(COMMAND, "sampler.fanout=[3]", "runtime.nproc=2", cwd=tmp_path)
    assert done.status == 1
    (line,) = done.errors
    assert "unknown configuration key sampler.fanout: did you mean sampler.fanouts?" in line


def descendants(pid: int) -> dict[int, int]:
    """The processes below ``pid``, each with its parent."""
    parents = {}
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            parents |= {child: pid, **descendants(child)}
    return parents


@pytest.mark.sample(6)
@pytest.mark.parametrize("way", ["own", "torchrun"])
def test_a_killed_worker_is_named_and_ends_the_job_soon(tmp_path: Path, way: str) -> None:
    line = [*COMMAND, "runtime.nproc=2"] if way == "own" else [*torchrun(2), "-m", "fullgnn.train_minibatch"]
    keys = [*KEYS, "train.epochs=100000", "train.eval_every=0", "loader.num_workers=2", "run_dir=run"]
    process = start_command(line, *keys, cwd=tmp_path, log=tmp_path / "log")
    try:
        epochs = tmp_path / "run" / "epochs.jsonl"
        _wait(lambda: (epochs.exists() and epochs.stat().st_size > 0) or process.poll() is not None, 100)
        assert process.poll() is None, (tmp_path / "log").read_text()
        below = descendants(process.pid)
        workers = [pid for pid in below if below[pid] != process.pid and not descendants(pid)]
        assert len(workers) == 4
        os.kill(workers[0], signal.SIGKILL)
        begin = time.monotonic()
        assert process.wait(30) != 0
        _wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 10)
        text = (tmp_path / "log").read_text()
        assert time.monotonic() - begin < SLACK * 5, text
        assert f"(process {workers[0]}) was killed (SIGKILL)" in text
        assert not any(Path(f"/proc/{pid}").exists() for pid in below)
    finally:
        process.kill()
        process.wait()


def _wait(condition, seconds: float) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
