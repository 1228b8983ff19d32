"""What the sections of the page are made of, and how its numbers are written."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fullgnn.report.runs import Run

Block = tuple[str, Any]
"""A part of a section: the name of a macro of ``page.html.j2``, and its argument.

``plot`` (``Plot``), ``table`` (``Table``), ``numbers`` (``Table``, folded where it is long), ``paragraph`` and ``note``
(text), ``listing`` (heading, text).
"""
Cells = Sequence[Sequence[str]]
"""The rows of a table; the first cell of a row is its heading."""
Show = Callable[[Any], str]
"""Writes a value as the text of a cell."""


class Table(NamedTuple):
    caption: str
    header: Sequence[str]
    rows: Cells | Mapping[str, Cells]  # or several groups of rows, by their headings


NOTHING = "–"
COUNT: Show = "{:,.0f}".format
RATIO: Show = "{:.3f}".format
DIGITS: Show = "{:.6g}".format


def shown(number: float | None, show: Show) -> str:
    """``show(number)``, or a dash where there is no number."""
    return NOTHING if number is None or math.isnan(number) else show(number)


def num_ranks(number: Any) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"


def unit(largest: float, names: Sequence[str]) -> tuple[float, str]:
    """A divisor that makes numbers up to ``largest`` readable, and its name.

    Args:
        names: of the units 1, 1000, 1000², ...
    """
    power = min(int(math.log10(largest)) // 3, len(names) - 1) if largest >= 1 else 0
    return 1000.0**power, names[power]


def missing(runs: Sequence[Run], present: Collection[Run], what: str) -> Iterator[Block]:
    """A paragraph that names the runs that did not record ``what``, if there are any."""
    names = [run.name for run in runs if run not in present]
    if names:
        whose = f" of {', '.join(names)}" if len(runs) > 1 else ""
        yield "paragraph", f"Not recorded: {what}{whose}."
