"""What a process does at its start, before it spends seconds on imports.

A rank makes sure that it ends with its launcher, and Ctrl-C ends a command with one line.
"""

import os
import signal
import sys
import threading
from types import FrameType

from fullgnn.orphan import LAUNCHER_PID, end_if_orphaned, end_with_launcher

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
_imported = threading.Event()


def is_command() -> bool:
    """Whether this process runs one of fullgnn's commands, as ``python -m fullgnn.train`` or ``fullgnn-train``."""
    given = sys.orig_argv[1:]
    module = given[given.index("-m") + 1] if "-m" in given[:-1] else ""
    script = os.path.basename(sys.argv[0])
    return module.removeprefix("fullgnn.") in COMMANDS or script.startswith("fullgnn-")


def begin() -> None:
    """Called first of all. Only a process that runs one of fullgnn's commands does anything.

    A rank ends with its launcher from here on. Ctrl-C ends the process with one line, until ``imported`` is called,
    since nothing has been done yet; but not where the signal is ignored, or has another handler.
    """
    if not is_command():
        return
    if "TORCHELASTIC_RUN_ID" in os.environ or LAUNCHER_PID in os.environ:
        end_with_launcher()
        threading.Thread(target=_watch, daemon=True).start()  # the launcher may be about to end at this very moment
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def imported() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again. Called when a command has imported what it needs."""
    _imported.set()
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _watch() -> None:
    while not _imported.wait(_LOOK_S):
        end_if_orphaned()


def _end(number: int, frame: FrameType | None) -> None:
    if "RANK" not in os.environ:  # a launcher says it once for all ranks
        os.write(2, b"stopped before the run began\n")
    os._exit(128 + number)
