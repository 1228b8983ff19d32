"""Tables of settings, each with the means and standard deviations of its runs: for the page, and as files for a paper.

A setting is what runs have in common that differ in their seeds and splits alone; see ``replicates.py``. Settings are
sorted by the mean of the first validation metric, the best first, since that is what chooses among them.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fullgnn.report.metrics import better, is_accuracy, show_as, split_of, title
from fullgnn.report.replicates import Quantity, Show, rows_of, std
from fullgnn.storage.folder import write_text

TIME = "epoch_time_ms"


class SettingMeans(NamedTuple):
    """Runs that differ in nothing but their seeds and splits."""

    name: str
    num_runs: int
    values: Mapping[str, Any]  # by name, of the metrics at the best epoch and ``epoch_time_ms``: a ``Mean`` or a number


def ranked(settings: Sequence[SettingMeans]) -> list[SettingMeans]:
    """The settings by their first validation metric, the best first; those without it last, in their order."""
    first = next((name for name in metric_names(settings) if split_of(name) == "val"), "")
    sign = 1 if better(first) is min else -1  # a metric of a user's own: the larger is the better

    def key(setting: SettingMeans) -> tuple[bool, float]:
        value = setting.values.get(first)
        return value is None, 0.0 if value is None else sign * float(value)

    return sorted(settings, key=key)


def metric_names(settings: Sequence[SettingMeans]) -> list[str]:
    """The metrics of the validation and of the test nodes that any of the ``settings`` has."""
    names = dict.fromkeys(name for setting in settings for name, at in setting.values.items() if at is not None)
    metrics = dict.fromkeys(name.partition("_")[2] for name in names if split_of(name) in ("val", "test"))
    return [name for metric in metrics for name in (f"val_{metric}", f"test_{metric}") if name in names]


def means_table(settings: Sequence[SettingMeans]) -> tuple[list[str], list[list[str]]]:
    """The header and the cells of a table of the settings, ranked, each number as ``81.50 ± 0.42 %``."""
    settings = ranked(settings)
    columns = [
        Quantity("setting", "setting"),
        Quantity("runs", "runs"),
        *(Quantity(title(name), name, _show(name)) for name in metric_names(settings)),
        Quantity("epoch, median", TIME, "{:.2f} ms".format),
    ]
    records = [{**setting.values, "setting": setting.name, "runs": setting.num_runs} for setting in settings]
    header, *rows = map(list, zip(*rows_of(columns, records)))
    return header, rows


def _show(name: str) -> Show:
    """Four digits behind the point, as papers have them, of a metric that lies between 0 and 1."""
    return "{:.4f}".format if better(name) is max and not is_accuracy(name) else show_as(name)


def as_csv(settings: Sequence[SettingMeans]) -> str:
    """A line for each setting, ranked, with two columns for each number: its mean, and its standard deviation, which is
    empty where there is one run."""
    settings = ranked(settings)
    names = [*metric_names(settings), TIME]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["setting", "runs", *(column for name in names for column in (name, f"{name}_std"))])
    for setting in settings:
        cells: list[Any] = []
        for value in map(setting.values.get, names):
            cells += ["", ""] if value is None else [float(value), std(value) if setting.num_runs > 1 else ""]
        writer.writerow([setting.name, setting.num_runs, *cells])
    return file.getvalue()


def as_markdown(settings: Sequence[SettingMeans]) -> str:
    """The cells of ``means_table`` as a table in Markdown."""
    header, rows = means_table(settings)
    lines = [header, [":---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def write_means(settings: Sequence[SettingMeans], folder: Path, names: Sequence[str]) -> list[Path]:
    """Write ``as_csv`` and ``as_markdown`` to files of these ``names``, if any setting has several runs, and return
    their paths."""
    paths = [folder / name for name in names] if any(setting.num_runs > 1 for setting in settings) else []
    for path, make in zip(paths, (as_csv, as_markdown)):
        write_text(path, make(settings))
    return paths
