"""The sections of what was learnt: the loss and the metrics by epoch, and the confusion matrices.

Curves that agree are one line, and the page says how well.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fullgnn.errors import quoted
from fullgnn.report.content import COUNT, PageBlock, Table, alike, each, in_words, missing, table_of, together
from fullgnn.report.means import SPLITS, is_accuracy, metric_title, metrics_in, show_as
from fullgnn.report.plots import Plot, curves
from fullgnn.report.replicates import Mean, Quantity, by_key, shown
from fullgnn.report.runs import ShownRun
from fullgnn.telemetry.screen import percent

TOLERANCE = 1e-6
"""Relative difference up to which two curves agree: that of sums in another order, in single precision."""
MAX_CELLS = 10_000
"""Cells of the table; a longer one has every second epoch, or fewer."""
MOST_CLASSES = 24
"""Classes up to which the page shows a whole confusion matrix."""
MOST_PAIRS = 24
"""Pairs of classes that the page shows of a larger one."""
MOST_CHARACTERS = 32
"""At most shown of the name of a class at the start of a row; half as many above a column of numbers."""

LearningCurve = Mapping[int, float]
"""The value at each epoch; nan where there is none."""


class Line(NamedTuple):
    """A line of a plot: the longest of several curves that agree."""

    key: str  # of the lines of epochs.jsonl
    runs: list[ShownRun]  # in the order of the page
    curve: LearningCurve
    apart: float  # the largest relative difference from it
    is_whole: bool  # whether all curves have the same epochs

    @property
    def title(self) -> str:
        """What the curve shows."""
        return "training loss" if self.key == "loss" else metric_title(self.key)

    def names(self, num_runs: int, write: Callable[[Sequence[str]], str], label: str = "name") -> str:
        """The names of the runs, listed by ``write``; ``all runs`` where the page has no other and they are more than
        two."""
        return "all runs" if len(self.runs) == num_runs > 2 else write([getattr(run, label) for run in self.runs])


def loss_and_metrics(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """One plot for each quantity, with the curves of all runs; sentences on those that agree; and their numbers."""
    names = metrics_in(line for run in runs for line in run.epochs)
    keys = ["loss", *(f"{split}_{name}" for name in names for split in SPLITS)]
    lines = [line for key in keys for line in _lines(key, runs)]
    for of_key in by_key(lines, lambda line: line.key).values():
        yield "plot", _plot(of_key, len(runs))
    for of_runs in by_key((line for line in lines if len(line.runs) > 1), lambda line: tuple(line.runs)).values():
        yield "paragraph", _agreement(of_runs, len(runs))
    if any(isinstance(value, Mean) for line in lines for value in line.curve.values()):
        yield "note", "Bands: the mean over the seeds or splits, plus and minus one standard deviation."
    epochs = sorted({epoch for line in lines for epoch in line.curve})
    if epochs:
        step = -(-len(epochs) * len(lines) // MAX_CELLS)
        which = "" if step == 1 else f", one epoch in {step}: epochs.jsonl has all of them"
        whose = [f"{line.names(len(runs), together)}: " if len(runs) > 1 else "" for line in lines]
        columns = [Quantity(whose[k] + line.title, k, show_as(line.key)) for k, line in enumerate(lines)]
        kept = dict.fromkeys((*epochs[::step], epochs[-1]))
        records = {str(epoch): {k: line.curve.get(epoch) for k, line in enumerate(lines)} for epoch in kept}
        yield "numbers", table_of(f"{loss_title(runs)} by epoch{which}", records, columns, "epoch")
    yield from missing(runs, [run for run in runs if run.epochs], "epochs.jsonl")


def loss_title(runs: list[ShownRun]) -> str:
    """Title of the section; there may be metrics other than the accuracy."""
    names = metrics_in(line for run in runs for line in run.epochs)
    return "Loss and accuracy" if set(names) <= {"accuracy"} else "Loss and metrics"


def difference(curve: LearningCurve, other: LearningCurve) -> float:
    """The largest relative difference of two curves at the epochs of both; infinite where only one has a value."""
    shared = curve.keys() & other.keys()
    return max((_relative(curve[epoch], other[epoch]) for epoch in shared), default=math.inf)


def _relative(value: float, other: float) -> float:
    if value == other or (math.isnan(value) and math.isnan(other)):
        return 0.0
    apart = abs(value - other) / max(abs(value), abs(other))
    return math.inf if math.isnan(apart) else apart


def _curve(run: ShownRun, key: str) -> dict[int, float]:
    """Values of ``key`` by epoch. A null is a loss that was not finite, or the metric of a split without nodes; what is
    no number has no place in a curve."""
    recorded = {line["epoch"]: math.nan if line[key] is None else line[key] for line in run.epochs if key in line}
    return {epoch: value for epoch, value in recorded.items() if isinstance(value, (int, float))}


def _lines(key: str, runs: Sequence[ShownRun]) -> list[Line]:
    """One line for all curves that agree; a curve without any value has none. The longest are compared with first."""
    known = {run: curve for run in runs if not all(map(math.isnan, (curve := _curve(run, key)).values()))}
    longest_first = dict(sorted(known.items(), key=lambda item: -len(item[1])))
    lines = []
    for longest, kind in alike(longest_first, lambda curve, other: difference(curve, other) <= TOLERANCE).items():
        curve = known[longest]
        apart = max(difference(curve, known[run]) for run in kind)
        is_whole = all(known[run].keys() == curve.keys() for run in kind)
        lines.append(Line(key, sorted(kind, key=runs.index), curve, apart, is_whole))
    return sorted(lines, key=lambda line: runs.index(line.runs[0]))


def _plot(lines: list[Line], num_runs: int) -> Plot:
    """One quantity over the epochs."""
    key, title, ends, series = lines[0].key, lines[0].title, {}, {}
    for line in lines:
        label = line.names(num_runs, together, "label") if num_runs > 1 else ""
        series[label] = line.runs[0].position, line.curve
        values = [shown(value, show_as(key)) for value in line.curve.values()]
        ends[line.names(num_runs, together)] = f"from {values[0]} to {values[-1]}"
    alt = each(f"{title[:1].upper()}{title[1:]} by epoch", ends)
    return Plot(re.sub(r"[^\w.@-]", "_", key), title, alt, curves, (series, is_accuracy(key)))


def _agreement(lines: list[Line], num_runs: int) -> str:
    """A sentence about runs whose curves agree, of which each of the ``lines`` stands for all."""
    where = "" if all(line.is_whole for line in lines) else ", in the epochs that they share"
    exactly = in_words([line.title for line in lines if line.apart == 0])
    apart = {line.title: re.sub(r"e([-+])0*", r"e\1", f"{line.apart:.0e}") for line in lines if line.apart}  # 3e-8
    nearly = in_words([f"{title} to {power}" for title, power in apart.items()])
    told = [f"{nearly} (largest relative difference)" if nearly else "", f"{exactly} exactly" if exactly else ""]
    whose = lines[0].names(num_runs, in_words)
    return f"The curves of {whose} agree{where}, and one line stands for them: {', '.join(filter(None, told))}."


def confusion(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """The matrices of the test nodes, or else of the validation nodes, of each run that has counted them.

    A small matrix is shown whole, with the share of each class that is predicted right; of a large one, the pairs of
    classes of which most nodes of the first are predicted to be of the second.
    """
    for run in runs:
        matrices = run.record.get("confusion") or {}
        split = next((split for split in ("test", "val", "train") if matrices.get(split)), None)
        if split is None:
            continue
        matrix, title = matrices[split], f"{run.prefix}{SPLITS[split]} nodes at the best epoch"
        names = run.record.get("confusion_classes") or []
        names, short = (_classes(names, len(matrix), most) for most in (MOST_CHARACTERS, MOST_CHARACTERS // 2))
        if len(matrix) <= MOST_CLASSES:
            what, header = "class (row) and predicted class", ["class", *short, "recall"]
            rows = [[names[k], *map(_count, row), _share(row[k], row)] for k, row in enumerate(matrix)]
        else:
            what = "the most frequent confusions"
            header = ["class", "predicted class", "nodes", "of the nodes of the class"]
            pairs = [(-count, k, j) for k, row in enumerate(matrix) for j, count in enumerate(row) if j != k and count]
            pairs = sorted(pairs)[:MOST_PAIRS]
            rows = [[names[k], names[j], _count(matrix[k][j]), _share(matrix[k][j], matrix[k])] for _, k, j in pairs]
        yield "table", Table(f"{title}: {what}", header, rows)


def _count(nodes: float) -> str:
    return shown(nodes, COUNT)


def _classes(names: Sequence[str], count: int, most: int) -> list[str]:
    """The number of each class, and its name, cut after ``most`` characters, if the classes have names."""
    if len(names) != count:  # a file may be damaged
        return [str(k) for k in range(count)]
    told = map(quoted, names)
    return [f"{k} {name if len(name) <= most else name[: most - 1] + '…'}" for k, name in enumerate(told)]


def _share(count: Any, row: Sequence[Any]) -> str:
    total = sum(map(float, row))
    return percent(float(count) / total if total else None)
