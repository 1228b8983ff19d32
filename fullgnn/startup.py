"""The start of a process, before it spends seconds on imports, and how it was started.

Ctrl-C ends a command with one line. A rank makes sure that it ends with its launcher, however that ends: no rank trains
on without one. This module therefore imports nothing that takes long.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import NamedTuple, NoReturn

LAUNCHER_PID = "FULLGNN_LAUNCHER_PID"
"""Environment variable of a rank that fullgnn has started: the process id of its launcher."""

STORE_FILE = "FULLGNN_STORE_FILE"
"""Environment variable of a rank that fullgnn has started: the path of the file that is the store of its job."""


COMMANDS = (
    "train",
    "train_minibatch",
    "predict",
    "inspect",
    "plan",
    "prepare",
    "report",
    "reproduce",
    "bench",
    "costs.measure",
)
"""The modules of fullgnn that are commands."""

_LOOK_S = 0.5
_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
_POLL_S = 1.0
_REFUSED_S = 1.0
"""Seconds for which nobody may listen where torchrun keeps its store, before the rank ends."""
_SELF, _PARENT = os.getpid(), os.getppid()  # as fullgnn is imported
_imported = threading.Event()


def is_command() -> bool:
    """Whether this process runs one of fullgnn's commands, as ``python -m fullgnn.train`` or ``fullgnn-train``."""
    given = sys.orig_argv[1:]
    module = given[given.index("-m") + 1] if "-m" in given[:-1] else ""
    script = os.path.basename(sys.argv[0])
    return module.removeprefix("fullgnn.") in COMMANDS or script.startswith("fullgnn-")


def under_torchrun() -> bool:
    """Whether this process is a rank that torchrun, ``launch_workers`` or ``fork_workers`` has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ or STORE_FILE in os.environ


def attempt() -> int:
    """torchrun's count of restarts on this machine. All machines start their ranks again when a rank has failed, but
    only the machine of that rank counts it, so that the counts of several machines differ."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def begin() -> None:
    """Called first of all. Only a process that runs one of fullgnn's commands does anything.

    A rank ends with its launcher from here on. Ctrl-C ends the process with one line, until ``imported`` is called,
    since nothing has been done yet; but not where the signal is ignored, or has another handler.
    """
    if not is_command():
        return
    if "TORCHELASTIC_RUN_ID" in os.environ or LAUNCHER_PID in os.environ:
        end_with_launcher()
        threading.Thread(target=_watch_launcher, daemon=True).start()  # it may be about to end at this very moment
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


def imported() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again. Called when a command has imported what it needs."""
    _imported.set()
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def answers(arguments: list[str], help_text: Callable[[], str]) -> bool:
    """Print, on rank 0, ``help_text()`` folded to 80 columns for ``-h`` or ``--help``, the version for ``--version``.

    Returns:
        whether the ``arguments`` ask for one of the two; the command then has nothing else to do.
    """
    asked = next((flag for flag in arguments if flag in ("-h", "--help", "--version")), None)
    if asked is not None and int(os.environ.get("RANK", 0)) == 0:
        from fullgnn.telemetry.folded_help import folded_help
        from fullgnn.version import __version__

        print(f"fullgnn {__version__}" if asked == "--version" else folded_help(help_text()))
    return asked is not None


class Tasks(NamedTuple):
    """The processes that a launcher has started from one command line, seen from one of them."""

    launcher: str
    variable: str  # of the environment, in which the launcher says how many there are
    number: int
    task: int  # this process; counts from 0
    num_machines: int

    @property
    def per_machine(self) -> int:
        return -(-self.number // self.num_machines)


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


def _stop(number: int, frame: FrameType | None) -> None:
    if "RANK" not in os.environ:  # a launcher says it once for all ranks
        os.write(2, b"stopped before the run began\n")
    os._exit(128 + number)


def end_with_launcher() -> None:
    """Let the system kill this process when its parent ends, also if SIGKILL ends the parent. May be called repeatedly.

    On Linux the signal comes when the parent's thread that started this process ends. A launcher waits for its ranks in
    the thread that started them. Other systems lack this signal, so that a thread of this process looks for the parent.

    The parent may have ended before. Then this process has another one than its launcher has told, or than it had when
    it began to import fullgnn; and nobody listens where torchrun kept its store. (That the parent is process 1 means
    nothing: in a container, torchrun may be process 1.)
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    else:
        threading.Thread(target=_watch_parent, daemon=True).start()
    _end_if_orphaned()


def _end_if_orphaned() -> None:
    """End this process if its launcher has ended."""
    if _has_another_parent() or _store_is_gone():
        _end()


def _has_another_parent() -> bool:
    parent = int(os.environ.get(LAUNCHER_PID, 0)) or (_PARENT if os.getpid() == _SELF else os.getppid())
    return os.getppid() != parent


def _store_is_gone() -> bool:
    """Whether a launcher of torch has started this process, and nobody listens where that launcher keeps its store.

    The store is there before the ranks, on the first machine. A machine that cannot be reached refuses nothing.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return False
    place, deadline = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), time.monotonic() + _REFUSED_S
    while True:
        try:
            socket.create_connection(place, timeout=_REFUSED_S).close()
            return False
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                return True
            time.sleep(_REFUSED_S / 10)
        except OSError:
            return False


def _watch_launcher() -> None:
    while not _imported.wait(_LOOK_S):
        _end_if_orphaned()


def _watch_parent() -> NoReturn:
    while not _has_another_parent():
        time.sleep(_POLL_S)
    _end()


def _end() -> NoReturn:
    os._exit(128 + signal.SIGKILL)
