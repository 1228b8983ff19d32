"""Keeps the memory of trials out of a run's statistics.

In a trial, ``kernel=auto`` converts a block to several formats, times their kernels, and frees the slower formats.

A counter of a run's memory is notified when a trial begins and ends, so that it can exclude the trial's memory. A trial
may keep formats for later trials of the same block with another width; ``free_kept_formats`` frees these formats.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Counter(Protocol):
    """Counts the memory of a run."""

    def begin_trial(self) -> None:
        """A trial begins: memory that is allocated from now on belongs to the trial."""

    def end_trial(self, kept_bytes: int) -> None:
        """The trial is over. Memory that it leaves allocated is the run's, except ``kept_bytes`` for later trials."""


class FormatHolder(Protocol):
    """An object that keeps formats which only a later trial may use."""

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
    """A context in which memory that is allocated and freed again does not count as the run's. Trials do not nest."""
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
    """Free the formats that trials have kept.

    This function is called after the first epoch and after the first evaluation, when no other width is expected, and
    therefore before a CUDA graph is captured.
    """
    if kept_bytes():
        with trial():
            for holder in list(_holders):
                holder.free_kept_formats()
