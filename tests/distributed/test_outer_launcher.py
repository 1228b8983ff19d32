"""Commands in an environment of srun, sbatch, salloc or mpirun: several tasks are refused, and one task trains."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fullgnn.distributed import outer_launcher
from fullgnn.distributed.outer_launcher import Tasks
from fullgnn.startup import tasks_of
from fullgnn.storage.record import read_record
from tests.commands import OWN, environment, run_command
from tests.slurm import SALLOC, SBATCH, SRUN, STEP

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
MPICH = {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}

KARATE = ["dataset=karate", "train.epochs=2", "runtime.device=cpu"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        (SALLOC, None),
        (SBATCH, None),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1"}, None),  # also the interactive step of salloc
        ({"SLURM_STEP_NUM_TASKS": "many"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "1", "PMI_SIZE": "1"}, None),
        (SRUN, Tasks("srun", "SLURM_STEP_NUM_TASKS", 2, 0, 1)),
        ({**SRUN, "SLURM_STEP_NUM_NODES": "2"}, Tasks("srun", "SLURM_STEP_NUM_TASKS", 2, 0, 2)),
        ({**SRUN, **MPICH}, Tasks("srun", "SLURM_STEP_NUM_TASKS", 2, 0, 1)),  # srun --mpi=pmi2
        (OPEN_MPI, Tasks("mpirun", "OMPI_COMM_WORLD_SIZE", 4, 3, 2)),
        ({**SRUN, **OPEN_MPI}, Tasks("mpirun", "OMPI_COMM_WORLD_SIZE", 4, 3, 2)),  # mpirun in a job of Slurm
        (MPICH, Tasks("mpiexec", "PMI_SIZE", 2, 1, 1)),
    ],
)
def test_only_a_process_that_is_one_of_several_has_tasks(variables: dict[str, str], expected: Tasks | None) -> None:
    assert tasks_of(variables) == expected


def use(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


COMMANDS = {
    "train": (["fullgnn.train", *KARATE], "torchrun"),
    "train_minibatch": (["fullgnn.train_minibatch", *KARATE], "torchrun"),
    "predict": (["fullgnn.predict", "checkpoint=missing"], "torchrun"),
    "sweep": (["fullgnn.train", "-m", *KARATE, "seed=0,1"], "python"),
    "prepare": (["fullgnn.prepare", *KARATE, "runtime.cache_dir=cache"], "python"),
    "inspect": (["fullgnn.inspect", "dataset=karate"], "python"),
    "plan": (["fullgnn.plan", "dataset=karate", "hardware=h200x8"], "python"),
    "bench": (["fullgnn.bench", "op=spmm"], "python"),
    "reproduce": (["fullgnn.reproduce", "target=fig7"], "python"),
    "dry run": (["fullgnn.train", *KARATE, "runtime.dry_run=true", "world_size=4"], "python"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_in_two_tasks_is_refused_with_the_line_to_type(name: str, tmp_path: Path, monkeypatch) -> None:
    use(monkeypatch, SRUN)
    (module, *arguments), starter = COMMANDS[name]
    done = run_command([sys.executable, "-m", module], *arguments, cwd=tmp_path)
    assert done.status == 1 and list(tmp_path.iterdir()) == [], done.output
    (line,) = done.output.splitlines()
    assert line.startswith("error: srun has started this command 2 times (SLURM_STEP_NUM_TASKS=2)")
    assert ("runtime.independent_tasks=true allows that" in line) == (name not in ("bench", "reproduce"))
    words = shlex.split(line.rpartition(": ")[2])
    ranks = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"] if starter == "torchrun" else []
    given = ["srun", "--nodes=1", "--ntasks=1", "--cpus-per-task=2", sys.executable, *ranks, "-m", module, *arguments]
    assert words == given


def test_the_other_tasks_end_with_the_same_status_and_say_nothing(tmp_path: Path, monkeypatch) -> None:
    use(monkeypatch, {**SRUN, "SLURM_PROCID": "1"})
    begin = time.monotonic()
    done = run_command(OWN, *KARATE, cwd=tmp_path)
    assert (done.status, done.output, list(tmp_path.iterdir())) == (1, "", [])
    assert time.monotonic() - begin >= outer_launcher.FIRST_TASK_S  # srun --kill-on-bad-exit would end the first task


def test_ranks_of_several_machines_meet_on_the_first(tmp_path: Path, monkeypatch) -> None:
    """``tests/distributed/test_slurm.py`` types this line where Slurm is installed."""
    use(monkeypatch, {**SRUN, "SLURM_STEP_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_CPUS_PER_NODE": "2,1"})
    done = run_command(OWN, *KARATE, "runtime.nproc=4", cwd=tmp_path)
    assert "for one run of 8 ranks" in done.output
    words = shlex.split(done.output.rpartition(" of srun: ")[2])
    assert words[:7] == ["srun", "--nodes=2", "--ntasks=2", "--cpus-per-task=1", "--gpus-per-node=4", "bash", "-c"]
    assert " --nproc-per-node=4 --nnodes=2 " in words[7]
    assert words[8:] == ["bash", "-m", "fullgnn.train", *KARATE, "runtime.nproc=4"]


def test_mpirun_on_several_machines_is_refused_too(tmp_path: Path, monkeypatch) -> None:
    use(monkeypatch, {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "0"})
    done = run_command(OWN, *KARATE, cwd=tmp_path)
    assert done.status == 1
    assert "mpirun has started this command 4 times (OMPI_COMM_WORLD_SIZE=4)" in done.output
    line = done.output.rpartition("on each of the 2 machines: ")[2]
    assert re.search(r" --nproc-per-node=2 --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=\S+:29500 ", line)


SCRIPT = """
import sys
import fullgnn
from fullgnn.graph.datasets import karate

if __name__ == "__main__":
    graph = karate.load(train_per_class=4, num_val=8, seed=0)
    fullgnn.train_graph(graph, "runtime.device=cpu", "train.epochs=2", *sys.argv[1:])
"""


@pytest.mark.sample(0)
def test_a_script_is_refused_and_the_line_that_is_printed_trains(tmp_path: Path) -> None:
    """A program in the place of srun starts one task, as srun does with these options."""
    (tmp_path / "bin").mkdir()
    srun = tmp_path / "bin" / "srun"
    srun.write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nSLURM_STEP_NUM_TASKS=1 exec "$@"\n')
    srun.chmod(0o755)
    (tmp_path / "mine.py").write_text(SCRIPT)
    env = {**environment(), **SRUN, "PATH": f"{srun.parent}{os.pathsep}{os.environ['PATH']}"}
    refused = run_command([sys.executable, "mine.py"], "run_dir='my run'", cwd=tmp_path, env=env)
    assert refused.status == 1 and not (tmp_path / "my run").exists()
    (line,) = (line for line in refused.output.splitlines() if "srun has started" in line)
    done = subprocess.run(line.rpartition(" of srun: ")[2], shell=True, cwd=tmp_path, env=env, timeout=120)
    assert done.returncode == 0
    assert read_record(tmp_path / "my run").world_size == 2


@pytest.mark.sample(3)
def test_with_the_key_each_task_is_a_run_of_its_own(tmp_path: Path, monkeypatch) -> None:
    for task in ("0", "1"):
        use(monkeypatch, {**SRUN, "SLURM_PROCID": task})
        own = ["runtime.independent_tasks=true", "seed=${oc.env:SLURM_PROCID}", "run_dir=runs/${oc.env:SLURM_PROCID}"]
        done = run_command(OWN, *KARATE, *own, cwd=tmp_path)
        assert done.status == 0, done.output
    records = [read_record(tmp_path / "runs" / task) for task in ("0", "1")]
    assert [(record.seed, record.world_size) for record in records] == [(0, 1), (1, 1)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("variables", [SBATCH, SALLOC, {**STEP, "SLURM_STEP_NUM_TASKS": "1"}])
def test_a_process_that_is_alone_trains_as_ever(variables: dict[str, str], tmp_path: Path, monkeypatch) -> None:
    use(monkeypatch, variables)
    done = run_command(OWN, *KARATE, "runtime.nproc=2", "run_dir=run", cwd=tmp_path)
    assert done.status == 0, done.output
    assert read_record(tmp_path / "run").world_size == 2
