"""What a target returns: rows of cells that hold the paper's value beside ours, and the panels of its figure.

Plain data: ``page`` makes Markdown, CSV and a PNG of it, and ``record.json`` keeps it as it is.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import GraphCase

Value = float | int | str | None
"""A text says why there is no number: ``not installed``."""

RowValues = Mapping[str, "Cell | Value"]
"""A cell for each column, or a value that is measured."""

RowLabels = tuple[str, ...]
"""What a row is about, as ``("Reddit", "epoch")``."""

Origin = Literal["measured", "simulated", "derived"]
"""``measured``: by a clock, a profiler or a count on this machine; ``simulated``: by a model, at least in part;
``derived``: from the layout or the configuration alone."""


OURS_AND_PAPER = ("ours", "paper")
"""The fields of a cell that are drawn where they are no times."""


@dataclass(frozen=True)
class Cell:
    """One value of ours, with the paper's where the paper has one."""

    ours: Value
    paper: Value = None
    unit: str = ""
    origin: Origin = "measured"
    ratio: float | None = None  # of ours, to a base in the same row: see ``speedups``
    paper_ratio: float | None = None  # the same of the paper's


@dataclass(frozen=True)
class TableRow:
    """A line of the table: its labels, and a cell for some of the columns."""

    labels: RowLabels
    cells: dict[str, Cell]


@dataclass(frozen=True)
class BarSeries:
    """The bars of one colour."""

    name: str
    values: list[float | None]  # a bar for each group; None: no bar
    paper: list[float | None] = field(default_factory=list)  # outlined beside them; empty: the paper has none
    error: list[float] = field(default_factory=list, kw_only=True)  # of each value, drawn up and down; empty: none is


@dataclass(frozen=True)
class Bars:
    """A panel of bars in groups."""

    title: str
    ylabel: str
    groups: list[str]
    series: list[BarSeries]


@dataclass(frozen=True)
class Curve:
    """A line of a plot."""

    name: str
    x: list[float]
    y: list[float]
    dashed: bool = False
    error: list[float] = field(default_factory=list)  # of each y, drawn as a bar up and down; empty: no bars


@dataclass(frozen=True)
class Curves:
    """A panel of lines."""

    title: str
    xlabel: str
    ylabel: str
    curves: list[Curve]
    log_x: bool = False  # a logarithmic axis, with ticks at the values of x


@dataclass
class Result:
    """What the ``run`` of a target returns."""

    labels: RowLabels  # heads of the columns that name a row
    columns: Sequence[str]
    rows: list[TableRow] = field(default_factory=list)
    panels: list[Bars | Curves] = field(default_factory=list)
    cases: list[GraphCase] = field(default_factory=list)  # the graphs that the target ran on
    notes: list[str] = field(default_factory=list)  # sentences below the table
    details: dict[str, Any] = field(default_factory=dict)  # for the record: all rounds, settings
    paper: Sequence[Mapping[str, Any]] = ()  # the numbers of the paper, see ``config.published``
    units: Mapping[str, str] = field(default_factory=dict)  # of columns whose cells are added as values

    def add(
        self, labels: RowLabels, row: RowValues, base: str = "", by: str = "", value: str = "", **names: Any
    ) -> TableRow:
        """Add a row, with the paper's values and speed-ups where its numbers have any of a row with these ``names``.

        Args:
            base: the column that the speed-ups of the row are over; empty: it has none.
            by: what the paper's numbers call the columns, such as ``way``; empty: each has its values under its head.
            value: what they call the values of all columns, if ``by`` names the columns.

        Returns:
            the row that has been added.
        """
        cells = {}
        for column, own in row.items():
            cell = own if isinstance(own, Cell) else Cell(own, unit=self.units.get(column, ""))
            if names:
                about, key = (names | {by: column}, value) if by else (names, column)
                paper = published(self.paper, key, **about) if cell.paper is None and key not in names else cell.paper
                ratio = published(self.paper, "speedup", **about) if by and base else cell.paper_ratio
                cell = replace(cell, paper=paper, paper_ratio=ratio)
            cells[column] = cell
        added = TableRow(labels, speedups(cells, base) if base else cells)
        self.rows.append(added)
        return added

    def draw(self, title: str, xlabel: str, ylabel: str, curves: Sequence[Curve]) -> None:
        """Draw ``curves`` into the panel of this title."""
        known = next((panel for panel in self.panels if panel.title == title), None)
        if not isinstance(known, Curves):
            known = Curves(title, xlabel, ylabel, [])
            self.panels.append(known)
        known.curves.extend(curves)


def number(value: Value) -> float | None:
    """Return ``value`` as a number, or None where it is missing or a text."""
    return float(value) if isinstance(value, (int, float)) else None


def numbers(rows: Iterable["TableRow"], column: str) -> list[float]:
    """Our numbers in a column."""
    return [value for row in rows if (value := number(row.cells[column].ours)) is not None]


def over(value: Value, base: Value) -> float | None:
    """Return ``value / base``, or None where one of the two is no number."""
    numerator, denominator = number(value), number(base)
    return numerator / denominator if numerator is not None and denominator else None


def cells(ours: Mapping[str, Value], unit: str = "", origin: Origin = "measured") -> dict[str, Cell]:
    """Make a cell for each column of ``ours``."""
    return {column: Cell(value, unit=unit, origin=origin) for column, value in ours.items()}


def speedups(cells: Mapping[str, Cell], base: str) -> dict[str, Cell]:
    """Set ``ratio`` of the times in ``cells``, all of one row: the time in column ``base`` over the cell's time.

    A measured time is never divided by a simulated one. The paper's ratio stays where the paper gives no times.
    """
    first, compared = cells.get(base, Cell(None)), {}
    for column, cell in cells.items():
        ratio = over(first.ours, cell.ours) if first.origin == cell.origin else None
        compared[column] = replace(cell, ratio=ratio, paper_ratio=over(first.paper, cell.paper) or cell.paper_ratio)
    return compared


def with_label(rows: Iterable[TableRow], *labels: str) -> list[TableRow]:
    """Select the ``rows`` that bear all of ``labels``."""
    return [row for row in rows if set(labels) <= set(row.labels)]


def bars(
    title: str,
    ylabel: str,
    rows: Iterable[TableRow],
    columns: Sequence[str] = (),
    heights: Sequence[str] = ("ratio", "paper_ratio"),
    group: int = 0,
    label: str = "",
    origins: Sequence[Origin] = (),
) -> list[Bars]:
    """Make panels with a group of bars for each row and a colour for each of ``columns``, the paper's bars outlined.

    Args:
        columns: empty: all.
        title: with ``{k}`` for label k of a row; rows with the same title share a panel.
        heights: the fields of a cell that are drawn, ours and, if any, the paper's. Times are drawn as ratios only: the
            seconds of two machines never share an axis.
        group: index of the label that names the group of a row.
        label: of the rows that are drawn; empty: all are.
        origins: those that the rows that are drawn have as a whole, panel by panel, whose titles say it; empty: any.
    """
    panels: dict[str, list[TableRow]] = {}
    all_origins: Sequence[Origin | None] = origins or [None]
    for origin, row in itertools.product(all_origins, with_label(rows, label) if label else rows):
        if not origin or {cell.origin for cell in row.cells.values()} == {origin}:
            panels.setdefault((f"{title}: {origin}" if origin else title).format(*row.labels), []).append(row)
    drawn = []
    for own_title, own in panels.items():
        by_column = {column: [row.cells.get(column, Cell(None)) for row in own] for column in columns or own[0].cells}
        series = [
            BarSeries(column, *([number(getattr(cell, key)) for cell in of_column] for key in heights))
            for column, of_column in by_column.items()
        ]
        drawn.append(Bars(own_title, ylabel, [row.labels[group] for row in own], series))
    return drawn


def transposed(rows: Mapping[str, TableRow]) -> list[TableRow]:
    """A row for each column, with the cells of all ``rows`` by their names."""
    columns: dict[str, TableRow] = {}
    for name, row in rows.items():
        for column, cell in row.cells.items():
            columns.setdefault(column, TableRow((column,), {})).cells[name] = cell
    return list(columns.values())
