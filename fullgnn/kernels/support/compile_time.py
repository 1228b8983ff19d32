"""The time for which this process waits for its kernels to be compiled, by itself or by another process.

numba compiles a kernel at its first call, unless its cache on disk has it. Then no time counts.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

TELL_AFTER_S = 1.0
"""Seconds of compiling after which a ``CompileClock`` tells that it goes on."""

clocks: list["CompileClock"] = []
"""The clocks that run now."""


class CompileClock:
    """Adds up the seconds of compiling; numba calls it as a listener.

    Args:
        lasts: called once, when the sum exceeds ``TELL_AFTER_S``.
    """

    def __init__(self, lasts: Callable[[], None]):
        self.seconds = 0.0
        self.is_kept = True  # whether numba keeps on disk all that it has compiled
        self._lasts, self._called = lasts, False
        self._depth, self._begin = 0, 0.0

    def notify(self, event: Any) -> None:
        """Note the start or the end of a compilation. One kernel may compile another one meanwhile."""
        if event.is_start:
            if self._depth == 0:
                self._begin = time.perf_counter()
            self._depth += 1
        elif event.is_end and self._depth > 0:
            self._depth -= 1
            if self._depth == 0:
                self.is_kept &= event.data["dispatcher"].stats.cache_path is not None
                self._add(time.perf_counter() - self._begin)

    def waited(self, seconds: float) -> None:
        """Note a wait for a process that compiles the same kernel."""
        if self._depth == 0:
            self._add(seconds)

    def _add(self, seconds: float) -> None:
        self.seconds += seconds
        if self.seconds > TELL_AFTER_S and not self._called:
            self._called = True
            self._lasts()


@contextmanager
def compile_clock(lasts: Callable[[], None]) -> Iterator[CompileClock]:
    """A clock that runs in the ``with`` block. It imports nothing: where numba is not loaded, it counts waits alone."""
    clock, events = CompileClock(lasts), sys.modules.get("numba.core.event")
    clocks.append(clock)
    if events is not None:
        events.Listener.register(CompileClock)  # numba takes no other listeners
        events.register("numba:compile", clock)
    try:
        yield clock
    finally:
        clocks.remove(clock)
        if events is not None:
            events.unregister("numba:compile", clock)


def waited(seconds: float) -> None:
    """Tell the clocks of this process of a wait for another process that compiles the same kernel."""
    for clock in clocks:
        clock.waited(seconds)
