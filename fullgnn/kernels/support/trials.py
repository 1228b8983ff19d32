"""Accounts for memory that only trials use: ``kernel=auto`` builds formats of a block to time them, then frees the
slower ones.

A counter of a run's memory is notified when a trial begins and ends, so that it can exclude the trial's memory. A trial
may keep formats for later trials of the same block with another width; ``settle`` frees them.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Counter(Protocol):
    """Counts the memory of a run."""

    def begin_trial(self) -> None:
        """Memory that is allocated from now on belongs to a trial."""

    def end_trial(self, kept_bytes: int) -> None:
        """The trial is over. Memory that it leaves allocated belongs to the run, except ``kept_bytes`` for others."""


class Keeper(Protocol):
    """Keeps formats that only a later trial may use."""

    def kept_bytes(self) -> int:
        """Size of the kept formats."""

    def settle(self) -> None:
        """Free the kept formats."""


_counters: "weakref.WeakSet[Counter]" = weakref.WeakSet()
_keepers: "weakref.WeakSet[Keeper]" = weakref.WeakSet()


def tell(counter: Counter) -> None:
    """Notify ``counter`` of trials for as long as it lives."""
    _counters.add(counter)


def keeps(keeper: Keeper) -> None:
    """Register ``keeper``, so that ``settle`` frees its formats."""
    _keepers.add(keeper)


def kept_bytes() -> int:
    """Size of all formats that are kept for later trials."""
    return sum(keeper.kept_bytes() for keeper in list(_keepers))


@contextmanager
def trial() -> Iterator[None]:
    """Memory that is allocated inside a trial and freed before its end is not the run's. Trials do not nest."""
    counters = list(_counters)
    for counter in counters:
        counter.begin_trial()
    try:
        yield
    finally:
        kept = kept_bytes()
        for counter in counters:
            counter.end_trial(kept)


def settle() -> None:
    """Free the formats that trials have kept, since no other width is expected. Called after the first epoch and the
    first evaluation, and so before a capture."""
    if kept_bytes():
        with trial():
            for keeper in list(_keepers):
                keeper.settle()
