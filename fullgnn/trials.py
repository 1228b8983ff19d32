"""Memory that only a trial takes: ``kernel=auto`` builds formats to time them, and frees those that lose.

Whoever counts the memory of a run is told when a trial begins and when it is over, and keeps the two apart.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Counter(Protocol):
    """Counts the memory of a run."""

    def begin_trial(self) -> None:
        """What is allocated from now on belongs to a trial."""

    def end_trial(self) -> None:
        """The trial is over. What it has left in place belongs to the run."""


_counters: "weakref.WeakSet[Counter]" = weakref.WeakSet()


def tell(counter: Counter) -> None:
    """Have ``counter`` told of trials for as long as it lives."""
    _counters.add(counter)


@contextmanager
def trial() -> Iterator[None]:
    """What is allocated inside, and freed before the end, does not belong to the run. Trials do not nest."""
    counters = list(_counters)
    for counter in counters:
        counter.begin_trial()
    try:
        yield
    finally:
        for counter in counters:
            counter.end_trial()
