"""User errors: one class for each place where the user can correct the problem, and the end by a signal.

Each message is one line: what is wrong, then what to change. ``fullgnn.train`` prints it without a
traceback on every rank and exits with status 1; any other exception is a bug in fullgnn.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class FullGNNError(Exception):
    """Base class of all user errors."""


class ConfigError(FullGNNError):
    """A configuration key or value is wrong, or two of them disagree."""


class DataError(FullGNNError):
    """A dataset file or an in-memory graph is missing, damaged or inconsistent."""


class PartitionError(FullGNNError):
    """The graph cannot be cut or ordered as configured."""


class UnsupportedError(FullGNNError):
    """The request is valid, but this machine or this combination of options cannot do it."""


class RankFailed(UnsupportedError):
    """One rank alone cannot go on. The others may wait for it in a collective: it ends at once, and its launcher ends
    them."""


class TrainingDiverged(FullGNNError):
    """The loss of a training, or a parameter, is no finite number any more. Raised on every rank; the message names the
    epoch, the last good checkpoint if there is one, and what to change."""


class TrainingStopped(FullGNNError):
    """A signal asked the job to stop, and the training has ended in order: no error, but no result either.

    Raised on every rank. The process then exits with status 128 + ``signal``, as a process that the signal ends.
    """

    def __init__(self, message: str, signal: int):
        super().__init__(message)
        self.signal = signal


MAX_QUOTED = 200
"""Characters of text from a file that an error message shows."""


def quoted(text: object) -> str:
    """``text``, which was taken from a file, as an error message shows it: one printable line, cut at 200 characters.

    A path or a cure is not text of a file, and is never cut: put only the part that the file chose through ``quoted``.
    """
    line = " ".join(str(text).split())
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line[: MAX_QUOTED + 1])
    return shown if len(shown) <= MAX_QUOTED else shown[: MAX_QUOTED - 3] + "..."


def message_of(error: BaseException) -> str:
    """The message of ``error`` in one line."""
    return " ".join(str(error).split())


def reason_of(error: BaseException) -> str:
    """The type of ``error`` and its message, in one line."""
    return f"{type(error).__name__}: {message_of(error)}"[:500]


def one_line_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that users call from Python, so that a user error has no traceback but that of the call.

    What raised it inside, such as Hydra's errors, is not shown: the message says what the user can change.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except FullGNNError as error:
            error.__context__ = None
            raise error.with_traceback(None) from None

    return call
