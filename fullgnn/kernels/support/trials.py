"""Keeps the memory of trials out of a run's statistics.

In a trial, ``kernel=auto`` converts a block to several formats, times their kernels, and frees the slower formats; or
a step is rehearsed with a copy of all that it changes. A counter of a run's memory is notified when a trial begins and
ends, so that it can count what the trial takes apart.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Counter(Protocol):
    """Counts the memory of a run."""

    def begin_trial(self) -> None:
        """A trial begins: memory that is allocated from now on belongs to the trial."""

    def end_trial(self) -> None:
        """The trial is over. Memory that it leaves allocated is the run's."""


_counters: "weakref.WeakSet[Counter]" = weakref.WeakSet()
_goes_on = False


def add_counter(counter: Counter) -> None:
    """Notify ``counter`` of trials for as long as it lives."""
    _counters.add(counter)


@contextmanager
def trial() -> Iterator[None]:
    """A context in which memory that is allocated and freed again does not count as the run's. A trial within another
    one is a part of it."""
    global _goes_on
    if _goes_on:
        yield
        return
    counters, _goes_on = list(_counters), True
    for counter in counters:
        counter.begin_trial()
    try:
        yield
    finally:
        _goes_on = False
        for counter in counters:
            counter.end_trial()
