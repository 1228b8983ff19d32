"""The ``main`` that all commands share: arguments, help, errors and exit status, in one process or on many ranks."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NoReturn

import fullgnn
from fullgnn import startup
from fullgnn.config import RuntimeConfig, conf_dir
from fullgnn.distributed.failure import WorkerError, report_bug, report_failure, report_lost_rank, wait_for_others
from fullgnn.distributed.joining import end_after_traceback, end_process, is_group_left_behind
from fullgnn.distributed.outer_launcher import SeveralTasksError, Tasks, refusal
from fullgnn.distributed.presence import LostRank
from fullgnn.distributed.store import under_torchrun
from fullgnn.errors import ConfigError, FullGNNError, RankFailed, TrainingStopped, message_of
from fullgnn.storage.memory import too_little
from fullgnn.telemetry.log import setup_logging

log = logging.getLogger(__name__)


def run_command(run: Callable[[list[str]], object], help_text: Callable[[], str], flags: Collection[str] = ()) -> None:
    """The ``main`` of a command: call ``run`` with the command's arguments.

    Args:
        flags: further ones that the command has, such as ``--config-dir``.

    ``--help`` and ``--version`` are answered instead. A user error ends the process with a message of one line and
    status 1, on every rank; a bug ends the process with a traceback.
    """
    setup_logging(int(os.environ.get("RANK", 0)))
    arguments = sys.argv[1:]
    if answers(arguments, help_text):
        return
    startup.imported()
    try:
        given = [argument for argument in arguments if argument.startswith("-")]
        if unknown := [one for one in given if one.partition("=")[0] not in flags]:
            raise ConfigError(f"{unknown[0]} is not known: give key=value, or --help for the keys")
        run(arguments)
    except KeyboardInterrupt:
        end_process(128 + signal.SIGINT)
    except FullGNNError as error:
        fail(error)
    except Exception as error:
        if (shortage := too_little(error, "the work of this process")) is not None:
            fail(RankFailed(str(shortage)))
        if under_torchrun():
            report_bug(error)
            end_after_traceback()
        raise


def answers(arguments: list[str], help_text: Callable[[], str]) -> bool:
    """Print, on rank 0, ``help_text()`` folded to 80 columns for ``-h`` or ``--help``, the version for ``--version``.

    Returns:
        whether the ``arguments`` ask for one of the two; the command then has nothing else to do.
    """
    asked = next((flag for flag in arguments if flag in ("-h", "--help", "--version")), None)
    if asked is not None and int(os.environ.get("RANK", 0)) == 0:
        from fullgnn.telemetry.folded_help import folded_help

        print(f"fullgnn {fullgnn.__version__}" if asked == "--version" else folded_help(help_text()))
    return asked is not None


def check_tasks(runtime: RuntimeConfig | None, one_process: bool = False) -> None:
    """Refuse to go on as one of several tasks. Called by a command before it starts ranks, or works without ranks.

    Args:
        runtime: None if the command has no such keys; then it is always refused.
        one_process: whether the command is one process that torchrun must not start, such as a sweep.

    Raises:
        SeveralTasksError: ``runtime.independent_tasks`` does not allow it; the message ends with the line to type.
    """
    tasks = tasks_of(os.environ)
    if tasks is not None and not under_torchrun() and not (runtime is not None and runtime.independent_tasks):
        raise refusal(tasks, runtime, one_process)


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


def help_with_keys(description: str | None, name: str) -> str:
    """The help of a command: its ``description`` and the file ``conf/<name>.yaml``, which explains every key."""
    return f"{description}\n{(conf_dir() / f'{name}.yaml').read_text()}"


def fail(error: FullGNNError) -> NoReturn:
    """Log ``error`` in one line and end this process with status 1, or 128 + the signal that stopped the training."""
    if isinstance(error, TrainingStopped):
        log.info("%s", message_of(error))  # on rank 0 only: it is no error
        if under_torchrun():
            wait_for_others()
        end_process(128 + error.signal)
    if isinstance(error, LostRank):
        report_lost_rank(error)
        end_process(1)
    if isinstance(error, SeveralTasksError) and error.task > 0:
        error.wait_for_first_task()
    elif not (isinstance(error, WorkerError) and error.is_logged):
        log.error("%s", message_of(error))
    if under_torchrun():
        report_failure(error)
        if not isinstance(error, RankFailed) and not is_group_left_behind():
            wait_for_others()
    end_process(1)


def make_folder(path: str | Path, key: str = "out") -> Path:
    """Create the folder ``path`` before a command does its work, so that a wrong path fails at once.

    Raises:
        ConfigError: the folder cannot be created; the message names ``key``, the configuration key of the path.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{key}={path} cannot be created ({error.strerror}): choose another folder") from error
    return folder
