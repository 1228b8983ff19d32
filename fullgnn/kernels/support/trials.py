"""Memory that only trials take: ``kernel=auto`` builds formats of a block to time them, and frees those that lose.

Whoever counts the memory of a run is told when a trial begins and when it is over, and keeps the two apart. A trial may
keep formats for the next one, of the same block and another width; ``settle`` frees them.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Counter(Protocol):
    """Counts the memory of a run."""

    def begin_trial(self) -> None:
        """What is allocated from now on belongs to a trial."""

    def end_trial(self, kept_bytes: int) -> None:
        """The trial is over. What it has left in place belongs to the run, except ``kept_bytes``, kept for others."""


class Keeper(Protocol):
    """Keeps formats that only a later trial may want."""

    def kept_bytes(self) -> int:
        """Their size."""

    def settle(self) -> None:
        """Free them."""


_counters: "weakref.WeakSet[Counter]" = weakref.WeakSet()
_keepers: "weakref.WeakSet[Keeper]" = weakref.WeakSet()


def tell(counter: Counter) -> None:
    """Have ``counter`` told of trials for as long as it lives."""
    _counters.add(counter)


def keeps(keeper: Keeper) -> None:
    """Have ``keeper`` free what it keeps when all is settled."""
    _keepers.add(keeper)


def kept_bytes() -> int:
    """Size of all that is kept for later trials."""
    return sum(keeper.kept_bytes() for keeper in list(_keepers))


@contextmanager
def trial() -> Iterator[None]:
    """What is allocated inside, and freed before the end, does not belong to the run. Trials do not nest."""
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
    """No other width is expected: free what trials have kept. Called after the first epoch and the first evaluation,
    and so before a capture."""
    if kept_bytes():
        with trial():
            for keeper in list(_keepers):
                keeper.settle()
