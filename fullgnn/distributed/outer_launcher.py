"""Refuse to run a command once in each of several processes that ``srun`` or ``mpirun`` has started.

``srun --ntasks=4 python -m fullgnn.train`` starts four processes that know nothing of each other. Each of them would
train alone, on the whole graph, and nothing would say that there are four runs of one rank instead of one run of four.
The ranks of one run are started by torchrun, of which srun starts one on each machine. So a process that is one of
several, and that torchrun has not started, ends with the line to type. ``docs/slurm.md`` is the page for users.
"""

import os
import re
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.mesh import default_nproc
from fullgnn.distributed.store import under_torchrun
from fullgnn.errors import ConfigError

KEY = "runtime.independent_tasks"

FIRST_TASK_S = 3.0
"""Seconds for which the other tasks wait before they end. mpirun, and srun with ``--kill-on-bad-exit``, end all tasks
as soon as one of them fails; the first task, which says why, may be slower than the others."""


class SeveralTasksError(ConfigError):
    """This process is one of several ``tasks``, each of which would run the command alone."""

    def __init__(self, message: str, task: int):
        super().__init__(message)
        self.task = task  # counts from 0

    def wait_for_first_task(self) -> None:
        """Give the first task the time to log this error for all tasks."""
        time.sleep(FIRST_TASK_S)


@dataclass(frozen=True)
class Tasks:
    """The processes that a launcher has started from one command line, seen from one of them."""

    launcher: str
    variable: str  # of the environment, in which the launcher says how many there are
    number: int
    task: int  # this process; counts from 0
    num_machines: int

    @property
    def per_machine(self) -> int:
        return -(-self.number // self.num_machines)


def check_tasks(runtime: RuntimeConfig | None, one_process: bool = False) -> None:
    """Refuse to go on as one of several tasks. Called by a command before it starts ranks, or works without ranks.

    Args:
        runtime: None if the command has no such keys; then it is always refused.
        one_process: whether the command is one process that torchrun must not start, such as a sweep.

    Raises:
        SeveralTasksError: ``runtime.independent_tasks`` does not allow it; the message ends with the line to type.
    """
    tasks = tasks_of(os.environ)
    if tasks is None or under_torchrun() or (runtime is not None and runtime.independent_tasks):
        return
    if one_process or runtime is None or runtime.dry_run:
        cure = f"to run it once, type: {shlex.join([*_srun(tasks, 1), *_python(), *_own_command()])}"
    else:
        nproc = tasks.per_machine if tasks.per_machine > 1 else default_nproc(runtime)
        cure = f"for one run of {nproc * tasks.num_machines} ranks, type{_where(tasks)}: {_torchrun_line(tasks, nproc)}"
    allowed = "" if runtime is None else f"{KEY}=true allows that; "
    raise SeveralTasksError(
        f"{tasks.launcher} has started this command {tasks.number} times ({tasks.variable}={tasks.number}), and each"
        f" would be a run of its own; {allowed}{cure}",
        tasks.task,
    )


def tasks_of(environment: Mapping[str, str]) -> Tasks | None:
    """The tasks of which a process with this ``environment`` is one; None: it is alone.

    An sbatch script and the shell of salloc are alone, whatever the number of tasks of their job is: only a process of
    a job step has ``SLURM_STEP_NUM_TASKS``. mpirun of Open MPI may start its processes from a step of Slurm, so Open
    MPI's variables come first. srun may set the variables of PMI too, so Slurm's come before those.
    """

    def number(name: str, default: int) -> int:
        text = environment.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else default

    for launcher, size, task, local_size in (
        ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", ""),
        ("mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"),
    ):
        tasks = number(size, 1)
        if tasks > 1:
            machines = -(-tasks // max(1, number(local_size, tasks)))
            machines = number("SLURM_STEP_NUM_NODES", 1) if launcher == "srun" else machines
            return Tasks(launcher, size, tasks, number(task, 0), max(1, machines))
    return None


def _where(tasks: Tasks) -> str:
    """Where the line is typed, and what the user adds to it, since no variable has it."""
    if tasks.launcher == "srun":
        return ", with your other options of srun"
    return f" on each of the {tasks.num_machines} machines" if tasks.num_machines > 1 else ""


def _torchrun_line(tasks: Tasks, nproc: int) -> str:
    """The line that starts one run, with ``nproc`` ranks on each machine."""
    machines = tasks.num_machines
    ranks = [*_torchrun(), f"--nproc-per-node={nproc}"]
    if machines == 1:
        return shlex.join([*_srun(tasks, 1), *ranks, "--standalone", *_own_command()])
    ranks += [f"--nnodes={machines}", "--rdzv-backend=c10d"]
    if tasks.launcher != "srun":
        meeting = [f"--rdzv-endpoint={socket.gethostname()}:29500", "--rdzv-id=1"]
        return shlex.join([*ranks, *meeting, *_own_command()])
    # Slurm chooses the machines when the line is typed, so that each machine finds out there where they meet.
    host, port = "$(scontrol show hostnames $SLURM_STEP_NODELIST | head -n 1)", "$((15000 + SLURM_JOB_ID % 15000))"
    script = f'{shlex.join(ranks)} --rdzv-endpoint={host}:{port} --rdzv-id=$SLURM_JOB_ID "$@"'
    return shlex.join([*_srun(tasks, machines), "bash", "-c", script, "bash", *_own_command()])


def _srun(tasks: Tasks, machines: int) -> list[str]:
    """The words that start one process on each machine, with the cores and GPUs of all tasks there."""
    if tasks.launcher != "srun":
        return []
    words = ["srun", f"--nodes={machines}", f"--ntasks={machines}"]
    cores, gpus = _counts("SLURM_CPUS_ON_NODE"), _counts("SLURM_GPUS_ON_NODE")
    if machines > 1:  # an allocation of 2 nodes and 4 tasks may have 3 cores on one node, and 1 on the other
        cores += _counts("SLURM_JOB_CPUS_PER_NODE")
    words += [f"--cpus-per-task={min(cores)}"] if cores else []
    return [*words, *([f"--gpus-per-node={min(gpus)}"] if gpus else [])]


def _counts(variable: str) -> list[int]:
    """The numbers in a variable of Slurm such as ``2`` or ``4(x2),1``, which means 4, 4 and 1."""
    return [int(number) for number in re.findall(r"(?:^|,)(\d+)", os.environ.get(variable, ""))]


def _own_command() -> list[str]:
    """What this process runs, as Python and torchrun take it: ``-m fullgnn.train``, or a script; then the arguments."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None:
        return ["-m", spec.name.removesuffix(".__main__"), *sys.argv[1:]]
    return [sys.argv[0] if os.path.isfile(sys.argv[0]) else "YOUR_SCRIPT.py", *sys.argv[1:]]


def _python() -> list[str]:
    """This Python, by its short name if that finds it."""
    return ["python"] if shutil.which("python") == sys.executable else [sys.executable]


def _torchrun() -> list[str]:
    """torchrun of this Python, by its short name if that finds it."""
    beside = os.path.join(os.path.dirname(sys.executable), "torchrun")
    return ["torchrun"] if shutil.which("torchrun") == beside else [sys.executable, "-m", "torch.distributed.run"]
