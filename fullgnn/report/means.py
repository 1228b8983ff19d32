"""Metrics, and tables of settings with their means: for the page, and as files for a paper.

The name of a metric in the files of a run says what it is: ``val_micro_f1`` is the micro F1 of the validation nodes.

A setting is what runs have in common that differ in their seeds and splits alone; see ``replicates.py``. Settings are
sorted by the mean of the first validation metric, the best first, since that is what chooses among them.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fullgnn.report.replicates import HeaderAndRows, Quantity, Show, by_record, std
from fullgnn.storage.folder import write_text
from fullgnn.telemetry.screen import percent

TIME = "epoch_time_ms"
SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Prefix of the name of a metric -> its title."""
LOWER = ("rmse", "mse", "mae", "mape", "loss", "error", "nll")
"""Last words of metrics of which a lower value is better."""
HIGHER = ("accuracy", "f1", "auc", "ap", "mrr", "precision", "recall", "r2", "ndcg", "hits", "mcc", "kappa")
"""Last words of metrics of which a higher value is better, also with a number, as in ``recall@20``."""
Settings = Mapping[str, Mapping[str, Any]]
"""Groups of runs that differ in their seeds and splits alone, by name: how many ``runs`` a group has, their metrics at
the best epoch and ``epoch_time_ms``, each a ``Mean`` or a number."""


def metrics_in(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """The metrics that any of ``lines`` has for a split, without the split, in the order in which they appear."""
    items = (item for line in lines for item in line.items())
    names = (name for name, value in items if split_of(name) and isinstance(value, int | float | None))
    return list(dict.fromkeys(name.partition("_")[2] for name in names))


def split_of(name: str) -> str:
    """``train``, ``val`` or ``test``; empty for a name that is not a metric of a split."""
    split, _, metric = name.partition("_")
    return split if split in SPLITS and metric else ""


def is_accuracy(name: str) -> bool:
    """Whether the metric ``name`` is an accuracy, which is shown in per cent."""
    return name.endswith("_accuracy")


def metric_title(name: str) -> str:
    """``val_micro_f1`` in words: validation micro_f1."""
    split = split_of(name)
    return f"{SPLITS[split]} {name.partition('_')[2]}" if split else name


def show_as(name: str) -> Callable[[Any], str]:
    """How the values of a metric are written: an accuracy in per cent, any other metric as a number."""
    return percent if is_accuracy(name) else "{:.6g}".format


def better(name: str) -> Callable[[Sequence[float]], float] | None:
    """``min`` or ``max``, which finds the best of several values of a metric; None: the name does not say which."""
    last = name.split("_")[-1].lower().partition("@")[0]
    if last in LOWER:
        return min
    return max if last in HIGHER else None


def ranked(settings: Settings) -> Settings:
    """The settings by their first validation metric, the best first; those without it last, in their order."""
    first = next((name for name in metric_names(settings) if split_of(name) == "val"), "")
    sign = 1 if better(first) is min else -1  # a metric of a user's own: the larger is the better
    values: dict[str, Any] = {name: setting.get(first) for name, setting in settings.items()}
    order = sorted(values, key=lambda name: math.inf if values[name] is None else sign * values[name])
    return {name: settings[name] for name in order}


def metric_names(settings: Settings) -> list[str]:
    """The metrics of the validation and of the test nodes that any of the ``settings`` has."""
    names = dict.fromkeys(name for setting in settings.values() for name, at in setting.items() if at is not None)
    metrics = dict.fromkeys(name.partition("_")[2] for name in names if split_of(name) in ("val", "test"))
    return [name for metric in metrics for name in (f"val_{metric}", f"test_{metric}") if name in names]


def means_table(settings: Settings) -> HeaderAndRows:
    """The header and the cells of a table of the settings, ranked, each number as ``81.50 ± 0.42 %``."""
    metrics = [Quantity(metric_title(name), name, _show(name)) for name in metric_names(settings)]
    about, time = (Quantity("setting", "setting"), Quantity("runs", "runs")), "{:.2f} ms".format
    records = [{**setting, "setting": name} for name, setting in ranked(settings).items()]
    return by_record([*about, *metrics, Quantity("epoch, median", TIME, time)], records)


def _show(name: str) -> Show:
    """Four digits behind the point, as papers have them, of a metric that lies between 0 and 1."""
    return "{:.4f}".format if better(name) is max and not is_accuracy(name) else show_as(name)


def as_csv(settings: Settings) -> str:
    """A line for each setting, ranked, with two columns for each number: its mean, and its standard deviation, which is
    empty where there is one run."""
    names = [*metric_names(settings), TIME]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["setting", "runs", *(column for name in names for column in (name, f"{name}_std"))])
    for setting, values in ranked(settings).items():
        cells: list[Any] = []
        for value in map(values.get, names):
            cells += ["", ""] if value is None else [float(value), std(value) if values["runs"] > 1 else ""]
        writer.writerow([setting, values["runs"], *cells])
    return file.getvalue()


def as_markdown(settings: Settings) -> str:
    """The cells of ``means_table`` as a table in Markdown."""
    header, rows = means_table(settings)
    lines = [header, [":---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def write_means(settings: Settings, folder: Path, names: Sequence[str]) -> list[Path]:
    """Write ``as_csv`` and ``as_markdown`` to files of these ``names``, if any setting has several runs, and return
    their paths."""
    paths = [folder / name for name in names] if any(setting["runs"] > 1 for setting in settings.values()) else []
    for path, make in zip(paths, (as_csv, as_markdown)):
        write_text(path, make(settings))
    return paths
