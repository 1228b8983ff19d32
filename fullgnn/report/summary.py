"""The section that compares the runs in numbers: what differs in their configurations, their set-up, their results."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from fullgnn.report import metrics
from fullgnn.report.content import COUNT, DIGITS, RATIO, Block, Show, Table, in_words, missing
from fullgnn.report.noise import Noise, best
from fullgnn.report.runs import FOLDER_KEYS, Run, setting_and_draw
from fullgnn.report.spread import NOTHING, shown
from fullgnn.telemetry.screen import num_bytes, percent

MILLISECONDS: Show = "{:.3f} ms".format
SECONDS: Show = "{:.2f} s".format


class Quantity(NamedTuple):
    """A row of the table that compares runs."""

    label: str
    key: str  # of record.json
    show: Show = str
    best: Callable[[Sequence[float]], float] | None = None  # ``min`` or ``max``; None: no value is better
    noise: Noise = "sample"


SETUP = (
    Quantity("dataset", "dataset"),
    Quantity("nodes", "num_nodes", COUNT),
    Quantity("stored non-zeros", "num_edges", COUNT),
    Quantity("non-zeros, normalised", "nnz", COUNT),
    Quantity("model", "model"),
    Quantity("parameters", "num_parameters", COUNT),
    Quantity("scheme", "scheme"),
    Quantity("ranks, p", "world_size"),
    Quantity("replicas, r", "replication"),
    Quantity("partition", "partition"),
    Quantity("order", "reorder"),
    Quantity("scope of the order", "reorder_scope"),
    Quantity("kernel", "kernel"),
    Quantity("exchange", "exchange"),
    Quantity("device", "device"),
    Quantity("type of numbers", "dtype"),
    Quantity("threads a rank", "threads"),
    Quantity("seed", "seed"),
)
RESULTS = (
    Quantity("epochs", "epochs", DIGITS),
    Quantity("epoch, median", "epoch_time_ms.median", MILLISECONDS, min, "clock"),
    Quantity("epoch, 20th percentile", "epoch_time_ms.p20", MILLISECONDS),
    Quantity("epoch, 80th percentile", "epoch_time_ms.p80", MILLISECONDS),
    Quantity("SpMM", "spmm_time_ms", MILLISECONDS, min, "clock"),
    Quantity("communication, exposed", "comm_time_ms", MILLISECONDS, min, "clock"),
    Quantity("dense", "dense_time_ms", MILLISECONDS, min, "clock"),
    Quantity("other", "other_time_ms", MILLISECONDS, min, "clock"),
    Quantity("communication hidden", "comm_hidden", percent, max, "clock"),
    Quantity("received, rank and epoch", "comm_bytes_per_epoch", lambda received: num_bytes(sum(received.values()))),
    Quantity("non-zeros, max / mean", "nnz_imbalance", RATIO, min, "count"),
    Quantity("the same, if every stage waits for all ranks", "stage_imbalance", RATIO, min, "count"),
    Quantity("edge cut", "edge_cut", percent, min, "count"),
    Quantity("needed rows", "needed_row_ratio", percent, min, "count"),
    Quantity("peak memory, process", "peak_memory_bytes", num_bytes, min),
    Quantity("peak memory, tensors", "peak_tensor_bytes", num_bytes, min, "count"),
    Quantity("set-up", "setup_time_s", SECONDS),
    Quantity("last training loss", "final_loss", DIGITS, min),
    Quantity("best epoch", "best_epoch", "{:.4g}".format),
)
ACCURACIES = (
    Quantity("train accuracy, best epoch", "train_accuracy", percent, max),
    Quantity("validation accuracy, best epoch", "val_accuracy", percent, max),
    Quantity("test accuracy, best epoch", "test_accuracy", percent, max),
    Quantity("test accuracy, last epoch", "final_test_accuracy", percent, max),
)

BOLD = (
    "Bold: the best of a row, where its range overlaps with no other. The epoch time ranges from its 20th to its 80th "
    "percentile, other times as far in proportion; a mean over seeds or splits, one standard deviation up and down. A "
    "loss, an accuracy or the memory of a process is taken as known to half a per cent where there is one run."
)
"""What is bold, in words; see ``noise.py``."""


def summary(runs: list[Run]) -> Iterator[Block]:
    """Tables with a column for each run."""
    header = ["", *(run.name for run in runs)]
    records = [
        run.record
        | {f"epoch_time_ms.{name}": ms for name, ms in run.record.get("epoch_time_ms", {}).items()}
        | {f"metrics.{name}": value for name, value in _metrics(run).items()}
        for run in runs
    ]
    results = (*RESULTS, *_scores(runs))
    comparable = len(runs) > 1 and len({run.record.get("dataset") for run in runs}) == 1
    kinds = [setting_and_draw(run) for run in runs] if comparable else []
    groups = {
        heading: [[quantity.label, *_cells(quantity, records, kinds)] for quantity in quantities]
        for heading, quantities in (("Set-up", SETUP), ("Result", results))
    }
    if len(runs) == 1:
        yield "tables", [Table(heading, header, rows) for heading, rows in groups.items()]
    else:
        differing = differences(runs)
        if differing:
            groups = {"What differs in the configuration": differing} | groups
        yield "table", Table("The runs side by side", header, groups)
        if not differing:
            yield "note", "The configurations differ in nothing but run_dir."
    if comparable:
        yield "note", BOLD
    uncounted = [run.name for run in runs if run.record and run.record.get("edge_cut", 0) is None]
    if uncounted:
        whose = f" of {in_words(uncounted)}" if len(runs) > 1 else ""
        yield "note", f"Not counted: edge cut and needed rows{whose} (train.statistics=true counts them)."
    yield from missing(runs, [run for run in runs if run.record], "record.json")


def _metrics(run: Run) -> dict[str, float | None]:
    """The metrics of a run that ``record.json`` has not as fields of their own."""
    return {name: value for name, value in (run.record.get("metrics") or {}).items() if name not in run.record}


def _scores(runs: list[Run]) -> list[Quantity]:
    """The accuracies, unless all runs have other metrics in their place, and these other metrics."""
    names = dict.fromkeys(name for run in runs for name in _metrics(run))
    accurate = any(run.record.get(quantity.key) is not None for run in runs for quantity in ACCURACIES)
    others = []
    for name in names:
        metric = name.removeprefix("final_")
        when = ", last epoch" if metric != name else ", best epoch" if metrics.split_of(name) else ""
        label = f"{metrics.title(metric)}{when}"
        others.append(Quantity(label, f"metrics.{name}", metrics.show_as(name), metrics.better(name)))
    return [*(ACCURACIES if accurate or not others else ()), *others]


def differences(runs: list[Run]) -> list[list[str]]:
    """A row for each key of the configuration that is not the same in all runs; ``_target_`` follows from ``name``."""
    settings = [run.settings for run in runs]
    keys = [key for key in dict.fromkeys(key for one in settings for key in one) if not key.endswith("._target_")]
    groups = list(dict.fromkeys(key.partition(".")[0] for key in keys))
    together = sorted(keys, key=lambda key: groups.index(key.partition(".")[0]))
    rows = [[key, *(one.get(key, NOTHING) for one in settings)] for key in together if key not in FOLDER_KEYS]
    return [row for row in rows if len(set(row[1:])) > 1]


def _cells(quantity: Quantity, records: list[dict[str, Any]], kinds: list[tuple[str, str]]) -> list[str]:
    """The quantity in each record, the best in bold where there are ``kinds``: comparable runs; see ``noise.py``."""
    values = [record.get(quantity.key) for record in records]
    texts = [_text(quantity, value) for value in values]
    found = best(values, texts, records, quantity.noise, quantity.best, kinds) if quantity.best and kinds else None
    return [Markup("<b>{}</b>").format(text) if k == found else text for k, text in enumerate(texts)]


def _text(quantity: Quantity, value: Any) -> str:
    if value in (None, ""):
        return NOTHING
    return shown(value, quantity.show) if isinstance(value, float) else quantity.show(value)
