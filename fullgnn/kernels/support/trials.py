"""Accounts for memory that only trials use: ``kernel=auto`` builds formats of a block to time them, then frees the
slower ones.

A counter of a run's memory is notified when a trial begins and ends, so that it can exclude the trial's memory. A trial
may keep formats for later trials of the same block with another width; ``free_kept_formats`` frees them.
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


class FormatHolder(Protocol):
    """Keeps formats that only a later trial may use."""

    def kept_bytes(self) -> int:
        """Size of the kept formats."""

    def free_kept_formats(self) -> None:
        """Free the kept formats."""


_counters: "weakref.WeakSet[Counter]" = weakref.WeakSet()
_holders: "weakref.WeakSet[FormatHolder]" = weakref.WeakSet()


def add_counter(counter: Counter) -> None:
    """Notify ``counter`` of trials for as long as it lives."""
    _counters.add(counter)


def add_holder(holder: FormatHolder) -> None:
    """Register ``holder``, so that ``free_kept_formats`` frees its formats."""
    _holders.add(holder)


def kept_bytes() -> int:
    """Size of all formats that are kept for later trials."""
    return sum(holder.kept_bytes() for holder in list(_holders))


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


def free_kept_formats() -> None:
    """Free the formats that trials have kept, since no other width is expected. Called after the first epoch and the
    first evaluation, and so before a capture."""
    if kept_bytes():
        with trial():
            for holder in list(_holders):
                holder.free_kept_formats()
