"""Refuse a command that ``srun`` or ``mpirun`` has started once in each of several processes, and say what to type.

``srun --ntasks=4 python -m fullgnn.train`` starts four processes that know nothing of each other. Each of them would
train alone, on the whole graph, and nothing would say that there are four runs of one rank instead of one run of four.
The ranks of one run are started by torchrun, of which srun starts one on each machine. So ``check_tasks`` ends a
process that is one of several, and that torchrun has not started, with the line to type. ``docs/slurm.md`` is the page
for users.
"""

import os
import re
import shlex
import shutil
import socket
import sys
import time

from fullgnn.config import RuntimeConfig
from fullgnn.config.overrides import SWEEP_REPORT
from fullgnn.distributed.mesh import default_nproc
from fullgnn.errors import ConfigError
from fullgnn.startup import Tasks

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


def refusal(tasks: Tasks, runtime: RuntimeConfig | None, one_process: bool) -> SeveralTasksError:
    """The error of a command that is one of several ``tasks``, with the line to type; arguments as ``check_tasks``."""
    if one_process or runtime is None or runtime.dry_run:
        cure = f"to run it once, type: {shlex.join([*_srun(tasks, 1), *_python(), *_own_command()])}"
    else:
        nproc = tasks.per_machine if tasks.per_machine > 1 else default_nproc(runtime)
        cure = f"for one run of {nproc * tasks.num_machines} ranks, type{_where(tasks)}: {_torchrun_line(tasks, nproc)}"
    allowed = "" if runtime is None else f"{KEY}=true allows that; "
    return SeveralTasksError(
        f"{tasks.launcher} has started this command {tasks.number} times ({tasks.variable}={tasks.number}), and each"
        f" would be a run of its own; {allowed}{cure}",
        tasks.task,
    )


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
    typed = [argument for argument in sys.argv[1:] if argument != SWEEP_REPORT]
    if spec is not None:
        return ["-m", spec.name.removesuffix(".__main__"), *typed]
    return [sys.argv[0] if os.path.isfile(sys.argv[0]) else "YOUR_SCRIPT.py", *typed]


def _python() -> list[str]:
    """This Python, by its short name if that finds it."""
    return ["python"] if shutil.which("python") == sys.executable else [sys.executable]


def _torchrun() -> list[str]:
    """torchrun of this Python, by its short name if that finds it."""
    beside = os.path.join(os.path.dirname(sys.executable), "torchrun")
    return ["torchrun"] if shutil.which("torchrun") == beside else [sys.executable, "-m", "torch.distributed.run"]
