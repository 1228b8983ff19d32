"""What a target found: a table whose cells hold the paper's value beside ours, and the panels of its figure.

Plain data: ``page`` makes Markdown and CSV of it, ``plot`` a PNG, and ``record.json`` keeps it as it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fullgnn.reproduce.graphs import Case

Value = float | int | str | None
"""A text says why there is no number: ``not installed``."""

Origin = Literal["measured", "simulated", "derived"]
"""``measured``: by a clock, a profiler or a count on this machine; ``simulated``: by a model, or with one in it;
``derived``: from the layout or the configuration alone."""


@dataclass(frozen=True)
class Cell:
    """One value of ours, with the paper's where it has one."""

    ours: Value
    paper: Value = None
    unit: str = ""
    origin: Origin = "measured"
    ratio: float | None = None  # of ours, to a base in the same row: see ``speedups``
    paper_ratio: float | None = None  # the same of the paper's


@dataclass(frozen=True)
class Row:
    """A line of the table: what it is about, and a cell for some of the columns."""

    labels: tuple[str, ...]
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Series:
    """One colour of a bar chart."""

    name: str
    values: list[float | None]  # a bar for each group; None: no bar
    paper: list[float | None] = field(default_factory=list)  # outlined beside them; empty: the paper has none


@dataclass(frozen=True)
class Bars:
    """A panel of bars in groups."""

    title: str
    ylabel: str
    groups: list[str]
    series: list[Series]


@dataclass(frozen=True)
class Curve:
    name: str
    x: list[float]
    y: list[float]
    dashed: bool = False


@dataclass(frozen=True)
class Curves:
    """A panel of lines."""

    title: str
    xlabel: str
    ylabel: str
    curves: list[Curve]


@dataclass(frozen=True)
class Result:
    """What ``run`` of a target returns."""

    labels: tuple[str, ...]  # heads of the columns that name a row
    columns: tuple[str, ...]
    rows: list[Row]
    panels: Sequence[Bars | Curves]
    cases: list[Case] = field(default_factory=list)  # the graphs that it ran on
    notes: list[str] = field(default_factory=list)  # a sentence each, below the table
    details: dict[str, Any] = field(default_factory=dict)  # for the record: all rounds, settings


def speedups(cells: Mapping[str, Cell], base: str) -> dict[str, Cell]:
    """``cells`` of one row, times, with ``ratio``: the time of the cell ``base`` over theirs, above 1 being faster.

    A measured time is never divided by a simulated one: such a cell keeps the ratio that it has. So does one without
    a number, and the paper's where either of the two is missing.
    """
    first = cells[base]
    return {
        key: replace(
            cell,
            ratio=_over(first.ours, cell.ours, cell.ratio) if first.origin == cell.origin else cell.ratio,
            paper_ratio=_over(first.paper, cell.paper, cell.paper_ratio),
        )
        for key, cell in cells.items()
    }


def ratio_bars(title: str, rows: Iterable[Row], columns: Iterable[str], group: int = 0) -> Bars:
    """A panel of the ``ratio`` of some columns, the paper's outlined: seconds of two machines never share an axis.

    Args:
        group: which label of a row names its group of bars.
    """
    rows, columns = list(rows), list(columns)

    def series(column: str) -> Series:
        cells = [row.cells.get(column, Cell(None)) for row in rows]
        return Series(column, [cell.ratio for cell in cells], [cell.paper_ratio for cell in cells])

    return Bars(title, "speed-up", [row.labels[group] for row in rows], [series(column) for column in columns])


def _over(base: Value, own: Value, otherwise: float | None) -> float | None:
    if isinstance(base, (int, float)) and isinstance(own, (int, float)) and own:
        return base / own
    return otherwise
