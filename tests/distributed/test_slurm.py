"""``launch/slurm.sh``: with programs in the place of Slurm's, and, with --all, in a real cluster on this machine."""

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fullgnn.storage.record import read_record
from tests.commands import ROOT, run_command
from tests.slurm import SBATCH, Cluster, cluster, missing

SCRIPT = str(ROOT / "launch" / "slurm.sh")
KARATE = ["dataset=karate", "train.epochs=3", "runtime.device=cpu"]
FOREVER = ["dataset=karate", "train.epochs=100000000", "train.eval_every=1000", "runtime.device=cpu"]
TRAIN = [sys.executable, "-m", "fullgnn.train"]


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """An environment of a batch script on two nodes, in which srun prints its arguments, one a line."""
    for name, script in (("srun", 'printf "%s\\n" "$@"; exit 3'), ("scontrol", "printf 'first\\nsecond\\n'")):
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, **SBATCH, "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "nodes", "PYTHON": "my-python"}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("variables", "given", "ranks", "command"),
    [
        ({}, ["dataset=karate", "run_dir=a b"], 1, ["fullgnn.train", "dataset=karate", "run_dir=a b"]),
        ({"SLURM_GPUS_ON_NODE": "4"}, ["fullgnn.predict", "checkpoint=run"], 4, ["fullgnn.predict", "checkpoint=run"]),
        ({"SLURM_GPUS_ON_NODE": "4", "RANKS_PER_NODE": "2"}, [], 2, ["fullgnn.train"]),
    ],
)
def test_the_script_starts_one_torchrun_a_node_and_passes_its_status_on(
    variables: dict[str, str],
    given: list[str],
    ranks: int,
    command: list[str],
    job: dict[str, str],
    tmp_path: Path,
) -> None:
    done = run_command([str(ROOT / "launch" / "slurm.sh")], *given, cwd=tmp_path, env=job | variables)
    assert done.status == 3
    expected = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpu-bind=none"]
    expected += ["my-python", "-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={ranks}"]
    expected += ["--rdzv-backend=c10d", "--rdzv-endpoint=first:15007", "--rdzv-id=7", "-m", *command]
    assert done.output.splitlines() == expected


def test_the_script_outside_of_a_job_says_how_it_is_started(tmp_path: Path) -> None:
    done = run_command([str(ROOT / "launch" / "slurm.sh")], cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert done.status == 1 and "start this script with sbatch launch/slurm.sh" in done.output


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := missing():
        pytest.skip(f"no cluster of Slurm: {why}")
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


REAL = pytest.mark.sample(0)  # with --all: each job takes seconds, and the scheduler as well


@REAL
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_batch_job_trains_on_two_ranks(nodes: int, slurm: Cluster, tmp_path: Path) -> None:
    options = [f"--nodes={nodes}", f"--gpus-per-node={2 // nodes}", "--cpus-per-task=2", "--output=log"]
    job = slurm.submit(*options, SCRIPT, *KARATE, "run_dir=run", cwd=tmp_path, PYTHON=sys.executable)
    assert slurm.wait_for(job, tmp_path) == "COMPLETED 0:0", (tmp_path / "log").read_text()
    assert read_record(tmp_path / "run").world_size == 2


@REAL
def test_the_exit_status_of_the_ranks_is_that_of_the_job(slurm: Cluster, tmp_path: Path) -> None:
    job = slurm.submit("--output=log", SCRIPT, "dataset=nothing", cwd=tmp_path, PYTHON=sys.executable)
    assert slurm.wait_for(job, tmp_path) == "FAILED 1:0"
    assert "error: " in (tmp_path / "log").read_text()


@REAL
@pytest.mark.parametrize("nodes", [1, 2])
def test_srun_with_two_tasks_is_refused_and_its_line_trains(nodes: int, slurm: Cluster, tmp_path: Path) -> None:
    tasks = [f"--nodes={nodes}", "--ntasks=2", "--gpus-per-task=1"]
    refused = slurm.run("srun", *tasks, *TRAIN, *KARATE, "run_dir='my run'", cwd=tmp_path)
    assert refused.returncode == 1 and list(tmp_path.iterdir()) == []
    (line,) = (line for line in refused.stderr.splitlines() if line.startswith("error: "))
    assert "for one run of 2 ranks" in line and f" --gpus-per-node={2 // nodes} " in line
    typed = slurm.run("bash", "-c", line.rpartition(" of srun: ")[2], cwd=tmp_path)
    assert typed.returncode == 0, typed.stderr
    assert read_record(tmp_path / "my run").world_size == 2


@REAL
def test_the_line_that_is_printed_also_trains_inside_of_salloc(slurm: Cluster, tmp_path: Path) -> None:
    """srun reads variables of the allocation, such as its number of tasks, where it has no option."""
    refused = shlex.join(["srun", *TRAIN, *KARATE, "run_dir=run"])
    inside = f"{refused} 2> log; sed -n 's/.* of srun: //p' log > line; bash line"
    done = slurm.run("salloc", "--nodes=2", "--ntasks=4", "bash", "-c", inside, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_record(tmp_path / "run").world_size == 4


@REAL
def test_salloc_and_a_batch_script_and_one_task_train_as_ever(slurm: Cluster, tmp_path: Path) -> None:
    line = shlex.join([*TRAIN, *KARATE, "runtime.nproc=2"])
    ways = {
        "salloc": ["salloc", "--ntasks=2", "bash", "-c", f"{line} run_dir=salloc"],
        "srun": ["srun", "--ntasks=1", "bash", "-c", f"{line} run_dir=srun"],
    }
    for way, words in ways.items():
        done = slurm.run(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert read_record(tmp_path / way).world_size == 2
    job = slurm.submit("--ntasks=2", f"--wrap={line} run_dir=batch", cwd=tmp_path)
    assert slurm.wait_for(job, tmp_path) == "COMPLETED 0:0"
    assert read_record(tmp_path / "batch").world_size == 2


@REAL
def test_with_the_key_each_task_is_a_run_of_its_own(slurm: Cluster, tmp_path: Path) -> None:
    own = ["runtime.independent_tasks=true", "seed=${oc.env:SLURM_PROCID}", "run_dir=runs/${oc.env:SLURM_PROCID}"]
    done = slurm.run("srun", "--ntasks=2", *TRAIN, *KARATE, *own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [read_record(tmp_path / "runs" / task).seed for task in ("0", "1")] == [0, 1]


@REAL
@pytest.mark.parametrize("way", ["--signal=TERM", "--batch --signal=TERM", "requeue"])
def test_a_job_that_is_asked_to_stop_leaves_a_checkpoint_and_goes_on(way: str, slurm: Cluster, tmp_path: Path) -> None:
    variables = {"PYTHON": sys.executable, "RANKS_PER_NODE": "1"}
    given = ["--nodes=2", "--output=log", SCRIPT, *FOREVER, f"run_dir={tmp_path / 'run'}", "resume=auto"]
    job = slurm.submit(*given, cwd=tmp_path, **variables)
    epochs, log = tmp_path / "run" / "epochs.jsonl", tmp_path / "log"
    _wait_for(lambda: epochs.exists() and epochs.stat().st_size > 0)
    ask = ["scontrol", "requeue", job] if way == "requeue" else ["scancel", *way.split(), job]
    assert slurm.run(*ask, cwd=tmp_path).returncode == 0
    if way != "requeue":
        assert slurm.wait_for(job, tmp_path) == "FAILED 1:0"
    _wait_for(lambda: "stopped at epoch" in log.read_text())
    (epoch,) = re.findall(r"^stopped at epoch (\d+); resume with: ", log.read_text(), re.MULTILINE)
    if way == "requeue":  # the job starts again by itself, some minutes later
        assert slurm.run("scancel", job, cwd=tmp_path).returncode == 0
    given[given.index("train.epochs=100000000")] = f"train.epochs={int(epoch) + 1}"
    again = slurm.submit(*given, cwd=tmp_path, **variables)
    assert slurm.wait_for(again, tmp_path) == "COMPLETED 0:0", log.read_text()
    assert f"resumes after epoch {epoch} " in log.read_text()


def _wait_for(condition: Callable[[], bool], timeout_s: float = 100) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
