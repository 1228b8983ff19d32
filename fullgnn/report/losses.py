"""The section of the loss and the metrics by epoch. Curves that agree are one line, and the page says how well."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fullgnn.report import metrics
from fullgnn.report.content import Block, Show, Table, alike, in_words, missing, together
from fullgnn.report.plots import Plot, curves
from fullgnn.report.runs import Run
from fullgnn.report.spread import Mean, shown

TOLERANCE = 1e-6
"""Relative difference up to which two curves agree: that of sums in another order, in single precision."""
MAX_CELLS = 10_000
"""Cells of the table; a longer one has every second epoch, or fewer."""

Curve = Mapping[int, float]
"""The value at each epoch; nan where there is none."""


class Line(NamedTuple):
    """A line of a plot: the longest of several curves that agree."""

    runs: list[Run]  # in the order of the page
    curve: Curve
    apart: float  # the largest relative difference from it
    is_whole: bool  # whether all curves have the same epochs


def loss_and_metrics(runs: list[Run]) -> Iterator[Block]:
    """One plot for each quantity, with the curves of all runs."""
    columns: dict[str, tuple[Curve, Show]] = {}  # of the table, by heading
    agreements: dict[tuple[Run, ...], dict[str, Line]] = {}  # the lines of several runs, by their titles
    names = metrics.metrics_in(line for run in runs for line in run.epochs)
    for key in ("loss", *(f"{split}_{name}" for name in names for split in metrics.SPLITS)):
        title = "training loss" if key == "loss" else metrics.title(key)
        lines = _lines({run: _curve(run, key) for run in runs})
        for line in lines:
            whose = f"{_whose([run.name for run in line.runs], len(runs), together)}: " if len(runs) > 1 else ""
            columns[whose + title] = line.curve, metrics.show_as(key)
            if len(line.runs) > 1:
                agreements.setdefault(tuple(line.runs), {})[title] = line
        if lines:
            yield "plot", _plot(key, title, lines, len(runs))
    for agreeing, of_runs in agreements.items():
        yield "paragraph", _agreement([run.name for run in agreeing], of_runs, len(runs))
    if any(isinstance(value, Mean) for curve, _ in columns.values() for value in curve.values()):
        yield "note", "Bands: the mean over the seeds or splits, plus and minus one standard deviation."
    yield from _table(loss_title(runs), columns)
    yield from missing(runs, [run for run in runs if run.epochs], "epochs.jsonl")


def loss_title(runs: list[Run]) -> str:
    """Title of the section; there may be metrics other than the accuracy."""
    names = metrics.metrics_in(line for run in runs for line in run.epochs)
    return "Loss and accuracy" if set(names) <= {"accuracy"} else "Loss and metrics"


def difference(one: Curve, other: Curve) -> float:
    """The largest relative difference of two curves at the epochs of both; infinite where only one has a value."""
    shared = one.keys() & other.keys()
    return max((_relative(one[epoch], other[epoch]) for epoch in shared), default=math.inf)


def _relative(one: float, other: float) -> float:
    if math.isnan(one) or math.isnan(other):
        return 0.0 if math.isnan(one) and math.isnan(other) else math.inf
    return 0.0 if one == other else abs(one - other) / max(abs(one), abs(other))


def _curve(run: Run, key: str) -> dict[int, float]:
    """Values of ``key`` by epoch. A null is a loss that was not finite, or the metric of a split without nodes; what is
    no number has no place in a curve."""
    recorded = {line["epoch"]: line[key] for line in run.epochs if key in line}
    numbers = {epoch: math.nan if value is None else value for epoch, value in recorded.items()}
    return {epoch: value for epoch, value in numbers.items() if isinstance(value, (int, float))}


def _lines(found: Mapping[Run, Curve]) -> list[Line]:
    """One line for all curves that agree; a curve without any value has none. The longest are compared with first."""
    known = {run: curve for run, curve in found.items() if not all(map(math.isnan, curve.values()))}
    longest_first = {run: known[run] for run in sorted(known, key=lambda run: -len(known[run]))}
    lines = []
    for longest, kind in alike(longest_first, lambda one, other: difference(one, other) <= TOLERANCE).items():
        apart = max(difference(known[longest], known[run]) for run in kind)
        is_whole = all(known[run].keys() == known[longest].keys() for run in kind)
        lines.append(Line(sorted(kind, key=lambda run: run.position), known[longest], apart, is_whole))
    return sorted(lines, key=lambda line: line.runs[0].position)


def _plot(key: str, title: str, lines: list[Line], num_runs: int) -> Plot:
    """One quantity over the epochs."""
    ends, show = [], metrics.show_as(key)
    for line in lines:
        values = [shown(value, show) for value in line.curve.values()]
        ends.append(f"{_whose([run.name for run in line.runs], num_runs, together)} from {values[0]} to {values[-1]}")
    labels = {line.runs[0]: _whose([run.label for run in line.runs], num_runs, together) for line in lines}
    series = {line.runs[0]: line.curve for line in lines}
    data = {"series": series, "in_percent": metrics.is_accuracy(key), "labels": labels if num_runs > 1 else {}}
    alt = f"{title[:1].upper()}{title[1:]} by epoch: {'; '.join(ends)}."
    return Plot(re.sub(r"[^\w.@-]", "_", key), title, alt, curves, data)


def _agreement(names: list[str], lines: Mapping[str, Line], num_runs: int) -> str:
    """A sentence about runs whose curves agree.

    Args:
        lines: those that stand for these runs, by their titles.
    """
    where = "" if all(line.is_whole for line in lines.values()) else ", in the epochs that they share"
    exactly = [title for title, line in lines.items() if line.apart == 0]
    nearly = [f"{title} to {_power(line.apart)}" for title, line in lines.items() if title not in exactly]
    told = [f"{in_words(nearly)} (largest relative difference)"] if nearly else []
    told += [f"{in_words(exactly)} exactly"] if exactly else []
    whose = _whose(names, num_runs, in_words)
    return f"The curves of {whose} agree{where}, and one line stands for them: {', '.join(told)}."


def _whose(names: Sequence[str], num_runs: int, write: Callable[[Sequence[str]], str]) -> str:
    """The names of runs, listed by ``write``; ``all runs`` where the page has no other and they are more than two."""
    return "all runs" if len(names) == num_runs > 2 else write(names)


def _power(number: float) -> str:
    """``3e-8``: one digit."""
    return re.sub(r"e([-+])0*", r"e\1", f"{number:.0e}")


def _table(title: str, columns: Mapping[str, tuple[Curve, Show]]) -> Iterator[Block]:
    """The curves in numbers."""
    epochs = sorted({epoch for points, _ in columns.values() for epoch in points})
    if not epochs:
        return
    step = -(-len(epochs) * len(columns) // MAX_CELLS)
    which = "" if step == 1 else f", one epoch in {step}: epochs.jsonl has all of them"
    kept = [epoch for k, epoch in enumerate(epochs) if k % step == 0 or epoch == epochs[-1]]
    rows = [[str(at), *(shown(points.get(at), show) for points, show in columns.values())] for at in kept]
    yield "numbers", Table(f"{title} by epoch{which}", ["epoch", *columns], rows)
