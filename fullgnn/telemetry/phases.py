"""Lines that announce the long phases of a set-up, each with about how long it takes."""

import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)

LEAST_S = 5.0
"""A phase that takes less is not announced."""

SECONDS_PER_MILLION = {
    "generating": 0.15,
    "generating=rmat": 0.45,
    "partition=metis": 0.2,
    "reorder=metis": 0.3,
    "reorder=rcm": 0.02,
    "reorder=slashburn": 0.1,
    "sorting": 0.08,
    "writing": 0.06,
}
"""Seconds for a million non-zeros, as measured on two cores of an AMD EPYC with 10 to 126 million of them. METIS and
SlashBurn differ from graph to graph by a factor of up to 6."""


def announce(phase: str, num_edges: int, works: Iterable[str]) -> None:
    """Log that a ``phase`` begins and how long its ``works`` take, if that is long.

    Args:
        num_edges: non-zeros that are worked on.
        works: keys of ``SECONDS_PER_MILLION``; another one, such as a method of the user, takes an unknown time.
    """
    seconds = num_edges / 1e6 * sum(SECONDS_PER_MILLION.get(work, 0.0) for work in works)
    if seconds >= LEAST_S:
        log.info("%s: about %s", phase, _rounded(seconds))


def _rounded(seconds: float) -> str:
    """Few digits, since it is an estimate."""
    if seconds < 90:
        return f"{round(seconds, -1) if seconds > 20 else round(seconds):.0f} s"
    return f"{seconds / 60:.0f} min"
