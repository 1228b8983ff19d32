"""The ``main`` of a command, and how the process of a command or of a rank ends.

A rank that a command has started ends right after it has reported an error, without the work of the interpreter's end,
where torch would wait for the other ranks again; see ``joining.py``.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NoReturn

from fullgnn import startup
from fullgnn.distributed.failure import WorkerError, report_bug, report_failure, report_lost_rank, wait_for_others
from fullgnn.distributed.joining import is_group_left_behind
from fullgnn.distributed.outer_launcher import SeveralTasksError
from fullgnn.distributed.presence import LostRank
from fullgnn.errors import ConfigError, FullGNNError, RankFailed, TrainingStopped, message_of
from fullgnn.startup import under_torchrun
from fullgnn.telemetry.log import setup_logging
from fullgnn.telemetry.machine import too_little

log = logging.getLogger(__name__)


def end_process(status: int) -> NoReturn:
    """End this process, which a command has started, with ``status``; at once, if a group has been left behind.

    All ``with`` blocks have ended, so that files are closed. Processes that this one has started end with it.
    """
    if is_group_left_behind():
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
                stream.flush()
        os._exit(status)
    sys.exit(status)


def end_after_traceback() -> None:
    """If a group has been left behind, end this process as soon as the exception that ends it has been printed."""
    hook = sys.excepthook

    def show(*error: Any) -> None:
        hook(*error)
        if is_group_left_behind():
            end_process(1)

    sys.excepthook = show


def run_command(run: Callable[[list[str]], object], help_text: Callable[[], str], flags: Collection[str] = ()) -> None:
    """The ``main`` of a command: call ``run`` with the command's arguments.

    Args:
        flags: further ones that the command has, such as ``--config-dir``.

    ``--help`` and ``--version`` are answered instead. A user error ends the process with a message of one line and
    status 1, on every rank; a bug ends the process with a traceback.
    """
    setup_logging(int(os.environ.get("RANK", 0)))
    arguments = sys.argv[1:]
    if startup.answers(arguments, help_text):
        return
    startup.imported()
    try:
        given = [argument for argument in arguments if argument.startswith("-")]
        if unknown := [flag for flag in given if flag.partition("=")[0] not in flags]:
            raise ConfigError(f"{unknown[0]} is not known: give key=value, or --help for the keys")
        run(arguments)
    except KeyboardInterrupt:
        end_process(128 + signal.SIGINT)
    except Exception as error:
        end_command(error)


def end_command(error: Exception) -> NoReturn:
    """End a command by ``error``: with one line and status 1 if it is a user's, otherwise by raising it again."""
    fail_if_known(error, "the work of this process")
    if under_torchrun():
        report_bug(error)
        end_after_traceback()
    raise error


def fail_if_known(error: Exception, what: str) -> None:
    """``fail`` if ``error`` is a user error, or says that memory was too little for ``what``; return if it is a bug."""
    if isinstance(error, FullGNNError):
        fail(error)
    if (shortage := too_little(error, what)) is not None:
        fail(RankFailed(str(shortage)))


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
