"""What the sections of the page are made of, and how its numbers are written."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import eq
from typing import Any, NamedTuple

from fullgnn.report.replicates import Quantity, Show, T, by_key, rows_of
from fullgnn.report.runs import ShownRun

PageBlock = tuple[str, Any]
"""A part of a section: its kind, which ``page.html.j2`` knows, and what it shows.

``plot`` (``Plot``), ``table`` (``Table``), ``numbers`` (``Table``, folded where it is long), ``paragraph`` and ``note``
(text), ``listing`` and ``error`` (heading, text).
"""
Cells = Sequence[Sequence[str]]
"""The rows of a table; the first cell of a row is its heading."""


class Table(NamedTuple):
    """A table of a page."""

    caption: str
    header: Sequence[str]
    rows: Cells | Mapping[str, Cells]  # or several groups of rows, by their headings


def table_of(caption: str, records: Mapping[str, Any], columns: Sequence[Quantity], corner: str = "") -> Table:
    """A table with a row for each record, which begins with its name, and a column for each quantity."""
    header, *rows = zip([corner, *records], *rows_of(columns, list(records.values())))
    return Table(caption, header, rows)


COUNTED_BY = (
    "train.statistics=true counts them in the run, and the report counts them of a finished run with runtime.cache_dir"
)
"""How the statistics of a graph come to the page."""
MANY = 6
"""The most runs that have a plot by rank each, and the most maps of a kind."""
COUNT: Show = "{:,.0f}".format
RATIO: Show = "{:.3f}".format
DIGITS: Show = "{:.6g}".format


def num_ranks(number: Any) -> str:
    """A number of ranks in words."""
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
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def each(what: str, told: Mapping[str, str]) -> str:
    """The text of a plot for those who do not see it: ``what: a TEXT; b TEXT.``"""
    return f"{what}: {'; '.join(map(' '.join, told.items()))}."


def together(names: Sequence[str]) -> str:
    """Two names, or the first one and how many others, for a title or a legend."""
    return in_words(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} others"


def whose(runs: Sequence[ShownRun], of_page: Sequence[ShownRun], write: Callable[[list[str]], str] = in_words) -> str:
    """`` of a and b``, or nothing where the page has one run."""
    return f" of {write([run.name for run in runs])}" if len(of_page) > 1 else ""


def alike(items: Mapping[ShownRun, T], same: Callable[[T, T], bool] = eq) -> dict[ShownRun, list[ShownRun]]:
    """The first run of each kind, and all runs of that kind: those whose item is the ``same`` as the first one's."""
    kinds: dict[ShownRun, list[ShownRun]] = {}
    for run, item in items.items():
        first = next((first for first in kinds if same(items[first], item)), run)
        kinds.setdefault(first, []).append(run)
    return kinds


def missing(runs: list[ShownRun], present: Collection[ShownRun], what: str, counted: str = "") -> Iterator[PageBlock]:
    """Paragraphs that name the runs without ``what``, if there are any.

    Args:
        counted: a field of the record that is null where the statistics of the graph were not counted: a run of which
            it is null is told what counts them, and why the report could not.
    """
    absent = [run for run in runs if run not in present]
    by_cure = by_key(absent, lambda run: _how_to_count(run, counted) if counted else "")
    for cure, without in sorted(by_cure.items()):
        of_whom = whose(without, runs, ", ".join)
        yield "paragraph", f"Not counted: {what}{of_whom} ({cure})." if cure else f"Not recorded: {what}{of_whom}."


def _how_to_count(run: ShownRun, field: str) -> str:
    """What counts the statistics of a run's graph; empty if the run counts them, but has not recorded them.

    Args:
        field: of the record, which is null if the run does not count them.
    """
    asked = run.record.get(field, 0) is not None and run.settings.get("train.statistics") != "false"
    return "" if asked and not run.uncounted else "; ".join(filter(None, (run.uncounted, COUNTED_BY)))
