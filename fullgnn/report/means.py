"""Tables of settings, each with the means and standard deviations of its runs: for the page, and as files for a paper.

A setting is what runs have in common that differ in their seeds and splits alone; see ``replicates.py``. Settings are
sorted by the mean of the first validation metric, the best first, since that is what chooses among them.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fullgnn.report.metrics import better, is_accuracy, show_as, split_of, title
from fullgnn.report.spread import shown, std
from fullgnn.storage.folder import write_text

Show = Callable[[Any], str]
TIME = "epoch_time_ms"


class Setting(NamedTuple):
    """Runs that differ in nothing but their seeds and splits."""

    name: str
    num_runs: int
    values: Mapping[str, Any]  # by name, of the metrics at the best epoch and ``epoch_time_ms``: a ``Mean`` or a number


def ranked(settings: Sequence[Setting]) -> list[Setting]:
    """The settings by their first validation metric, the best first; those without it last, in their order."""
    first = next((name for name in metric_names(settings) if split_of(name) == "val"), None)
    if first is None:
        return list(settings)
    sign = 1 if better(first) is min else -1  # a metric of a user's own: the larger is the better

    def key(setting: Setting) -> tuple[bool, float]:
        value = setting.values.get(first)
        return (True, 0.0) if value is None else (False, sign * float(value))

    return sorted(settings, key=key)


def metric_names(settings: Sequence[Setting]) -> list[str]:
    """The metrics of the validation and of the test nodes that any of the ``settings`` has."""
    names = dict.fromkeys(name for one in settings for name, value in one.values.items() if value is not None)
    found = dict.fromkeys(name.partition("_")[2] for name in names if split_of(name) in ("val", "test"))
    return [f"{split}_{metric}" for metric in found for split in ("val", "test") if f"{split}_{metric}" in names]


def means_table(settings: Sequence[Setting]) -> tuple[list[str], list[list[str]]]:
    """The header and the cells of a table of the settings, ranked, each number as ``81.50 ± 0.42 %``."""
    settings = ranked(settings)
    names = metric_names(settings)
    rows = [
        [
            one.name,
            str(one.num_runs),
            *(shown(one.values.get(name), _show(name)) for name in names),
            shown(one.values.get(TIME), "{:.2f} ms".format),
        ]
        for one in settings
    ]
    return ["setting", "runs", *map(title, names), "epoch, median"], rows


def _show(name: str) -> Show:
    """Four digits behind the point, as papers have them, of a metric that lies between 0 and 1."""
    return "{:.4f}".format if better(name) is max and not is_accuracy(name) else show_as(name)


def as_csv(settings: Sequence[Setting]) -> str:
    """A line for each setting, ranked, with two columns for each number: its mean, and its standard deviation, which is
    empty where there is one run."""
    settings = ranked(settings)
    names = [*metric_names(settings), TIME]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["setting", "runs", *(column for name in names for column in (name, f"{name}_std"))])
    for one in settings:
        cells: list[Any] = []
        for name in names:
            value = one.values.get(name)
            deviation = "" if value is None or one.num_runs < 2 else std(value)
            cells += ["" if value is None else float(value), deviation]
        writer.writerow([one.name, one.num_runs, *cells])
    return file.getvalue()


def as_markdown(settings: Sequence[Setting]) -> str:
    """The cells of ``means_table`` as a table in Markdown."""
    header, rows = means_table(settings)
    lines = [header, [":---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def write_means(settings: Sequence[Setting], folder: Path, names: Sequence[str]) -> list[Path]:
    """Write ``as_csv`` and ``as_markdown`` to files of these ``names``, if any setting has several runs, and return
    their paths."""
    paths = [folder / name for name in names] if any(one.num_runs > 1 for one in settings) else []
    for path, make in zip(paths, (as_csv, as_markdown)):
        write_text(path, make(settings))
    return paths
