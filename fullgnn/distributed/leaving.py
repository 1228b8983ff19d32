"""How a rank leaves its job: with the process group destroyed, or without waiting for anybody.

Over NCCL, ``destroy_process_group`` waits for the operations in flight, and so for the other ranks. Where one rank
raises an error and the others go on, each waits for the other, until the timeout of a collective, and the error is not
seen before (github.com/pytorch/torchtitan/pull/1342). So a rank destroys the group

    after success                   every rank comes to the end of its job
    after an error of all ranks     a ``FullGNNError`` that all ranks raise, once all of them have left the job

and leaves it behind after any other error, which is then reported at once. A rank that a command has started ends right
after its report, without the work of the interpreter's end, where torch would wait again. In a user's own process, such
as a script under torchrun, the error reaches the user; the group is destroyed when the process joins its next job, to
which all ranks have come by then.

Which errors do all ranks raise? By the rule that no rank decides alone (docs/architecture.md, "Where errors are
decided") every ``FullGNNError`` follows from what all ranks know, or is sent to all of them, by ``from_rank0``,
``on_every_rank``, ``Watch`` or a request to stop; the two exceptions are ``RankFailed`` and ``LostRank``. Every other
exception is a bug, a signal, or a lack of memory, which a rank meets alone. A user's model can break the rule, and
raise a ``FullGNNError`` on one rank only: hence a rank waits until all have left, but not for long.
"""

import logging
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import torch.distributed as dist

from fullgnn.distributed.presence import LostRank, Presence
from fullgnn.errors import FullGNNError, RankFailed

WAIT_FOR_ALL_S = 10.0
"""Seconds in which every rank has left the job, if all of them have raised an error."""

_left_behind: dist.ProcessGroup | None = None


def leave_group(error: BaseException, presence: Presence | None) -> None:
    """Destroy the process group after ``error``, or leave it behind, as the docstring of this module explains it.

    Args:
        presence: the ranks of the job, which this rank has left; None: it is the only one.
    """
    global _left_behind
    if presence is None or presence.size == 1 or (is_of_all_ranks(error) and presence.all_leave(WAIT_FOR_ALL_S)):
        dist.destroy_process_group()
    else:
        _left_behind = dist.group.WORLD


def is_of_all_ranks(error: BaseException) -> bool:
    """Whether ``error`` is one that every rank of the job raises."""
    return isinstance(error, FullGNNError) and not isinstance(error, (RankFailed, LostRank))


def is_group_left_behind() -> bool:
    """Whether torch still has the process group of a job that this process has left after an error."""
    return _left_behind is not None and _left_behind is dist.group.WORLD


def destroy_group_left_behind() -> None:
    """Destroy the group of an earlier job. All ranks have come to their next job, so that none waits for another."""
    global _left_behind
    if is_group_left_behind():
        dist.destroy_process_group()
    _left_behind = None


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
