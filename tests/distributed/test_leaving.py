"""One rank that raises an error ends the job at once, also where destroying the process group waits for all ranks."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from fullgnn import api
from fullgnn.distributed import (
    all_gather_objects,
    fork_workers,
    init_world,
    is_group_left_behind,
    joining,
    presence,
)
from fullgnn.distributed.joining import is_of_all_ranks
from fullgnn.distributed.presence import LostRank
from fullgnn.engine import step_runner
from fullgnn.errors import ConfigError, DataError, RankFailed, TrainingDiverged, TrainingStopped
from tests.cases import config
from tests.commands import OWN, environment, run_command, start_command, torchrun
from tests.trainings import NEW_PROCESSES

KEYS = ["dataset=karate", "runtime.device=cpu", "runtime.nproc=2", "train.epochs=8", "run_dir=run"]
ENDS_IN_S = 60
"""Far less than the half hour for which ranks would wait for each other, and enough for a machine that is busy."""


def destroy_waits_for_all(folder: Path) -> None:
    """Let ``destroy_process_group`` return when all ranks have called it, as over NCCL, where it waits for operations
    in flight. Each rank that calls it leaves a file in ``folder``."""
    destroy = dist.destroy_process_group

    def wait() -> None:
        (folder / f"destroys_{os.environ['RANK']}").touch()
        while num_destroying(folder) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.01)
        destroy()

    vars(dist)["destroy_process_group"] = wait


def num_destroying(folder: Path) -> int:
    return len(list(folder.glob("destroys_*")))


def fail_in_a_step(error: Exception, ranks: tuple[int, ...], folder: Path) -> None:
    """Let ``ranks`` raise ``error`` in their third step."""
    destroy_waits_for_all(folder)
    step = step_runner.train_step
    joining.WAIT_FOR_ALL_S = 0.5 if len(ranks) == 1 else 60.0

    def failing(run: Any, *args: Any) -> None:
        if run.state.epoch == 2 and int(os.environ["RANK"]) in ranks:
            raise error
        step(run, *args)

    vars(step_runner)["train_step"] = failing


def outcome(folder: Path, error: Exception, *ranks: int) -> tuple[int, str]:
    """The exit status and the output of a command whose ``ranks`` fail in a step."""
    log = folder / "log"
    process = start_command(OWN, *KEYS, cwd=folder, log=log, first=partial(fail_in_a_step, error, ranks, folder))
    try:
        return process.wait(ENDS_IN_S), log.read_text()
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the job did not end:\n{log.read_text()}") from None
    finally:
        process.kill()


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.sample(4)), 1])
def test_a_bug_of_one_rank_ends_the_job_with_its_traceback(tmp_path: Path, rank: int) -> None:
    status, output = outcome(tmp_path, RuntimeError(f"a bug of rank {rank}"), rank)
    assert status == 1 and num_destroying(tmp_path) == 0
    assert output.count("Traceback") == 1 and output.count(f"\nRuntimeError: a bug of rank {rank}\n") == 1, output
    assert "error: " not in output
    assert (tmp_path / "run" / "epochs.jsonl").read_text().count("\n") == 2 and not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("error", [DataError("only one rank says so: mend it"), MemoryError()])
def test_a_user_error_of_one_rank_is_one_line(tmp_path: Path, error: Exception) -> None:
    status, output = outcome(tmp_path, error, 1)
    (line,) = [line for line in output.splitlines() if "error: " in line]
    assert status == 1 and num_destroying(tmp_path) == 0 and "Traceback" not in output
    assert line.startswith(f"[rank 1] error: {str(error) or 'the work of this rank does not fit into memory'}")


def test_after_an_error_of_all_ranks_they_destroy_the_group(tmp_path: Path) -> None:
    status, output = outcome(tmp_path, DataError("all say so: mend it"), 0, 1)
    lines = sorted(line for line in output.splitlines() if "error: " in line)
    assert lines == ["[rank 1] error: all say so: mend it", "error: all say so: mend it"]
    assert status == 1 and num_destroying(tmp_path) == 2


SCRIPT = """
from pathlib import Path
from fullgnn import train
from tests.distributed.test_leaving import fail_in_a_step
fail_in_a_step(RuntimeError("a bug of rank 1"), (1,), Path())
train.main()
"""


@NEW_PROCESSES
def test_a_rank_of_torchrun_that_fails_ends_the_job_too(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    begin = time.monotonic()
    done = run_command([*torchrun(2), "script.py"], *KEYS, cwd=tmp_path)
    assert done.status == 1 and time.monotonic() - begin < 60, done.output
    assert "RuntimeError: a bug of rank 1" in done.output.partition("Root Cause")[2], done.output
    assert "in failing" in done.output and num_destroying(tmp_path) == 0


@NEW_PROCESSES
@pytest.mark.parametrize("status", [0, 3])
def test_a_process_ends_with_its_status_and_all_that_it_has_written(tmp_path: Path, status: int) -> None:
    """Text of a stream that is a file is written when the process ends, if nobody flushes it before."""
    script = (
        "import torch.distributed as dist\nfrom fullgnn.distributed import command, joining\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "joining.left_behind = dist.group.WORLD\n"
        f"print('said')\ncommand.end_process({status})"
    )
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run([sys.executable, "-c", script], env=environment(), stdout=out, timeout=60)
    assert (done.returncode, (tmp_path / "out").read_text()) == (status, "said\n")


def run_twice(folder: Path) -> None:
    """A script of a user, as a rank: its first run fails on rank 1, which goes on at once; then it runs again."""
    destroy_waits_for_all(folder)
    vars(joining)["WAIT_S"], presence.LOOK_S = 0.0, 0.05
    runtime = config("runtime.device=cpu", "runtime.threads=1").runtime
    begin = time.monotonic()
    try:
        with init_world(runtime) as world:
            if world.rank == 1:
                raise RuntimeError("a bug of rank 1")
            all_gather_objects(world.rank)
    except RuntimeError as error:
        assert os.environ["RANK"] == "1" and str(error) == "a bug of rank 1"
    except LostRank:
        assert os.environ["RANK"] == "0"
    assert is_group_left_behind() and num_destroying(folder) == 0 and time.monotonic() - begin < ENDS_IN_S
    with init_world(runtime) as world:
        assert num_destroying(folder) == 2 and not is_group_left_behind()
        assert all_gather_objects(world.rank) == [0, 1]
    assert not dist.is_initialized()


def test_an_error_reaches_a_user_s_own_process_at_once_and_the_next_run_works(tmp_path: Path) -> None:
    fork_workers(run_twice, tmp_path, nproc=2, runtime=config().runtime)


def test_train_graph_joins_again_after_a_run_that_left_its_group_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of the user's own is refused, as it has always been."""
    monkeypatch.setattr(api, "run", lambda cfg: "joined")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ConfigError, match="torch.distributed is in use in this process"):
            api.run_as_rank(config(), None)
        monkeypatch.setattr(joining, "left_behind", dist.group.WORLD)
        assert api.run_as_rank(config(), None) == "joined"
    finally:
        joining.destroy_group_left_behind()
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (lambda: DataError("the file is damaged"), True),
        (lambda: TrainingDiverged("the loss is not finite"), True),
        (lambda: TrainingStopped("a signal came", 15), True),
        (lambda: RankFailed("a worker has ended"), False),
        (lambda: LostRank("a rank is stopped"), False),
        (lambda: RuntimeError("a bug"), False),
        (KeyboardInterrupt, False),
    ],
)
def test_which_errors_all_ranks_raise(error: Callable[[], BaseException], expected: bool) -> None:
    assert is_of_all_ranks(error()) is expected
