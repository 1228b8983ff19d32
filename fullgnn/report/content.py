"""What the sections of the page are made of, and how its numbers are written."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fullgnn.report.runs import Run

Block = tuple[str, Any]
"""A part of a section: the name of a macro of ``page.html.j2``, and its argument.

``plot`` (``Plot``), ``table`` (``Table``), ``numbers`` (``Table``, folded where it is long), ``paragraph`` and ``note``
(text), ``listing`` and ``error`` (heading, text).
"""
Cells = Sequence[Sequence[str]]
"""The rows of a table; the first cell of a row is its heading."""
Show = Callable[[Any], str]
"""Writes a value as the text of a cell."""
T = TypeVar("T")


class Table(NamedTuple):
    caption: str
    header: Sequence[str]
    rows: Cells | Mapping[str, Cells]  # or several groups of rows, by their headings


MANY = 6
"""The most runs that have a plot by rank each, and the most maps of a kind."""
COUNT: Show = "{:,.0f}".format
RATIO: Show = "{:.3f}".format
DIGITS: Show = "{:.6g}".format


def num_ranks(number: Any) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"


def unit(largest: float, names: Sequence[str]) -> tuple[float, str]:
    """A divisor that makes numbers up to ``largest`` readable, and its name.

    Args:
        names: of the units 1, 1000, 1000², ...
    """
    power = min(int(math.log10(largest)) // 3, len(names) - 1) if largest >= 1 else 0
    return 1000.0**power, names[power]


def in_words(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def together(names: Sequence[str]) -> str:
    """Two names, or the first one and how many others, for a title or a legend."""
    return in_words(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} others"


def alike(items: Mapping[Run, T], same: Callable[[T, T], bool]) -> dict[Run, list[Run]]:
    """The first run of each kind, and all runs of that kind: those whose item is the ``same`` as the first one's."""
    kinds: dict[Run, list[Run]] = {}
    for run, item in items.items():
        first = next((first for first in kinds if same(items[first], item)), run)
        kinds.setdefault(first, []).append(run)
    return kinds


def _counts(run: Run, field: str) -> bool:
    """Whether a run counts the statistics of its graph, by a ``field`` of its record that is null if it does not."""
    return run.record.get(field, 0) is not None and run.settings.get("train.statistics") != "false"


def missing(runs: Sequence[Run], present: Collection[Run], what: str, counted: str = "") -> Iterator[Block]:
    """Paragraphs that name the runs without ``what``, if there are any.

    Args:
        counted: a field of the record that is null where the statistics of the graph were not counted: a run of which
            it is null is told what counts them.
    """
    without = [run for run in runs if run not in present]
    uncounted = [run for run in without if counted and not _counts(run, counted)]
    unrecorded = [run for run in without if run not in uncounted]
    for verb, named, cure in (
        ("Not recorded", unrecorded, ""),
        ("Not counted", uncounted, " (train.statistics=true counts them)"),
    ):
        if named:
            whose = f" of {', '.join(run.name for run in named)}" if len(runs) > 1 else ""
            yield "paragraph", f"{verb}: {what}{whose}{cure}."
