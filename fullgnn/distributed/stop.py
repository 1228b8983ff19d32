"""Ask a process to stop with a signal: the first is recorded, so that the work in progress can end in order."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from fullgnn.distributed.failure import is_lost_connection
from fullgnn.errors import FullGNNError

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals that ask a process to stop."""

REPEATED_AFTER_S = 1.0
"""A signal that comes sooner after the first one repeats it: a terminal's Ctrl-C reaches a rank from the terminal and
from the launcher."""


@dataclass
class StopRequest:
    """Whether the process has been asked to stop."""

    signal: int | None = None
    """The first signal that was received, or None."""
    is_urgent: bool = False
    """Whether another signal was received, at least ``REPEATED_AFTER_S`` seconds after the first."""
    problem: FullGNNError | None = None
    """Why this process itself asks all ranks to stop, without a signal."""
    _time: float = 0.0

    @property
    def is_asked(self) -> bool:
        """Whether there is a reason to stop."""
        return self.signal is not None or self.problem is not None

    def raise_problem(self) -> None:
        """Raise ``problem``, if there is one."""
        if self.problem is not None:
            raise self.problem

    def receive(self, number: int) -> None:
        """Record the signal ``number``, which has just come."""
        now = time.monotonic()
        if self.signal is None:
            self.signal, self._time = number, now
        elif now - self._time >= REPEATED_AFTER_S:
            self.is_urgent = True


@contextmanager
def stop_requests(end_if_urgent: bool = True) -> Iterator[StopRequest]:
    """Record the signals that ask this process to stop, instead of ending at once.

    Signals that are ignored when the block begins stay ignored (``nohup``). Python calls signal handlers in the main
    thread only, between two of its own instructions; in another thread the block records nothing.

    A process that has been asked to stop and then loses the connection to another rank ends silently: the launcher is
    ending the job, and the other rank may have ended before.

    Args:
        end_if_urgent: whether a second signal ends the process at once; see ``StopRequest.is_urgent``.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        request.receive(number)
        if request.is_urgent and end_if_urgent:
            end_by(number)

    previous = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        # None is the handler of a library in C, which Python could not restore.
        previous = {number: old for number, old in handlers.items() if old not in (signal.SIG_IGN, None)}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield request
    except Exception as error:
        if request.signal is not None and is_lost_connection(error):
            end_by(request.signal)
        raise
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def end_by(number: int) -> None:
    """End this process as the signal ``number`` does where it has no handler. Called in the main thread."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def use_default_handlers() -> None:
    """Let each stop signal that is not ignored end this process silently, even while it waits in a collective."""
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
