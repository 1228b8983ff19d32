"""Signals to real trainings: to the command, to its launcher's process group, and to one rank."""

import json
import os
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

from tests.commands import OWN, run_command
from tests.trainings import EACH_WAY, LONG, NEW_PROCESSES, WAYS, is_running, training, wait


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "sweep"), [("SIGTERM", False), ("SIGINT", True)])
def test_a_signal_to_the_command_ends_its_ranks(tmp_path: Path, name: str, sweep: bool) -> None:
    """A signal also ends a sweep: no other job starts, and finished jobs stay in ``sweep.csv``."""
    arguments = ["-m", "train.epochs=1,10000000,2"] if sweep else [LONG]
    with training(tmp_path, OWN, *arguments, job="1" if sweep else "") as run:
        ranks = run.ranks
        run.process.send_signal(signal.Signals[name])
        assert run.process.wait(timeout=30) == 128 + signal.Signals[name]
        assert not any(map(is_running, ranks))
        assert "Traceback" not in run.output
        if sweep:
            assert not (run.run_dir / "2").exists()
            assert (run.run_dir / "sweep.csv").read_text().count(",ok,") == 1


@pytest.mark.parametrize(
    ("way", "name"),
    [
        ("forked", "SIGTERM"),
        pytest.param("launched", "SIGINT", marks=NEW_PROCESSES),
        pytest.param("torchrun", "SIGTERM", marks=NEW_PROCESSES),
    ],
)
def test_a_stopped_run_says_how_to_go_on_and_does(tmp_path: Path, way: str, name: str) -> None:
    with training(tmp_path, WAYS[way], LONG, "train.eval_every=100") as run:
        begin = time.monotonic()
        run.process.send_signal(signal.Signals[name])
        status = run.process.wait(timeout=30)
        assert time.monotonic() - begin < 10
        (said,) = re.findall(r"^stopped at epoch (\d+); resume with: (.*)$", run.output, re.MULTILINE)
        if way != "torchrun":  # torchrun prints a traceback of its own
            assert status == 128 + signal.Signals[name] and "Traceback" not in run.output, run.output
            assert run.output.endswith(f"resume with: {said[1]}\n")
    stopped, keys = int(said[0]), shlex.split(said[1])
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [f"epoch_{stopped:06d}"]
    again = ["dataset=karate", "train.eval_every=100", f"train.epochs={stopped + 2}", *keys]
    assert run_command(OWN, *again, cwd=tmp_path).status == 0
    lines = (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, stopped + 3))


@pytest.mark.parametrize("way", EACH_WAY)
def test_no_rank_outlives_its_launcher(tmp_path: Path, way: str) -> None:
    with training(tmp_path, WAYS[way], LONG) as run:
        ranks = run.ranks
        run.process.kill()
        wait(lambda: not any(map(is_running, ranks)), 5)


@pytest.mark.parametrize("way", EACH_WAY)
def test_a_killed_rank_is_named_first_and_alone(tmp_path: Path, way: str) -> None:
    with training(tmp_path, WAYS[way], LONG) as run:
        os.kill(run.ranks[1], signal.SIGKILL)
        assert run.process.wait(timeout=15) == 1
        if way == "torchrun":  # torchrun prints a traceback of its own, and then the cause
            assert "fullgnn/" not in run.output and "Error executing job" not in run.output
            cause = run.output.partition("Root Cause")[2]
            assert re.search(r"rank +: 1 .*\n.*\(SIGKILL\)", cause), run.output
        else:
            *before, said = run.output.splitlines()
            assert said.startswith("error: rank 1 was killed (SIGKILL), as the system does when memory runs out: ")
            assert not any(word in line for line in before for word in ("rank", "Error", "Traceback")), before


def ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.parametrize("way", EACH_WAY[:2])
def test_nohup_keeps_a_run_alive(tmp_path: Path, way: str) -> None:
    with training(tmp_path, WAYS[way], "train.epochs=60", first=ignore_hangup) as run:
        for pid in run.ranks:
            os.kill(pid, signal.SIGHUP)
        os.killpg(run.process.pid, signal.SIGHUP)
        assert run.process.wait(timeout=60) == 0, run.output
        assert (run.run_dir / "record.json").exists()
