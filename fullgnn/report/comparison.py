"""The runs side by side in numbers: what differs in their configuration, their set-up, their results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fullgnn.report.figures import Figures
from fullgnn.report.markup import Markup, element, paragraph, parted_table, table
from fullgnn.report.runs import Run
from fullgnn.report.wording import NOTHING, absent, count, digits, milliseconds, ratio, seconds
from fullgnn.telemetry.table import num_bytes, percent


def total_bytes(by_collective: dict[str, float]) -> str:
    return num_bytes(sum(by_collective.values()))


@dataclass(frozen=True)
class Row:
    label: str
    key: str  # of record.json, dotted
    show: Callable[[Any], str] = str
    best: Callable[[Sequence[float]], float] | None = None  # ``min`` or ``max``; None: no value is better


SETUP = (
    Row("dataset", "dataset"),
    Row("nodes", "num_nodes", count),
    Row("stored non-zeros", "num_edges", count),
    Row("non-zeros, normalised", "nnz", count),
    Row("model", "model"),
    Row("parameters", "num_parameters", count),
    Row("scheme", "scheme"),
    Row("ranks, p", "world_size"),
    Row("replicas, r", "replication"),
    Row("partition", "partition"),
    Row("order", "reorder"),
    Row("scope of the order", "reorder_scope"),
    Row("kernel", "kernel"),
    Row("exchange", "exchange"),
    Row("device", "device"),
    Row("type of numbers", "dtype"),
    Row("threads a rank", "threads"),
    Row("seed", "seed"),
)
RESULTS = (
    Row("epochs", "epochs"),
    Row("epoch, median", "epoch_time_ms.median", milliseconds, min),
    Row("epoch, 20th percentile", "epoch_time_ms.p20", milliseconds),
    Row("epoch, 80th percentile", "epoch_time_ms.p80", milliseconds),
    Row("SpMM", "spmm_time_ms", milliseconds, min),
    Row("communication, exposed", "comm_time_ms", milliseconds, min),
    Row("dense", "dense_time_ms", milliseconds, min),
    Row("other", "other_time_ms", milliseconds, min),
    Row("communication hidden", "comm_hidden", percent, max),
    Row("received, rank and epoch", "comm_bytes_per_epoch", total_bytes),
    Row("non-zeros, max / mean", "nnz_imbalance", ratio, min),
    Row("the same, where stages wait", "stage_imbalance", ratio, min),
    Row("edge cut", "edge_cut", percent, min),
    Row("needed rows", "needed_row_ratio", percent, min),
    Row("peak memory, process", "peak_memory_bytes", num_bytes, min),
    Row("peak memory, tensors", "peak_tensor_bytes", num_bytes, min),
    Row("set-up", "setup_time_s", seconds, min),
    Row("last training loss", "final_loss", digits, min),
    Row("best epoch", "best_epoch"),
    Row("train accuracy, best epoch", "train_accuracy", percent, max),
    Row("validation accuracy, best epoch", "val_accuracy", percent, max),
    Row("test accuracy, best epoch", "test_accuracy", percent, max),
    Row("test accuracy, last epoch", "final_test_accuracy", percent, max),
)


def comparison(runs: list[Run], figures: Figures) -> list[Markup]:
    """Section: a column for each run."""
    header = ["", *(run.name for run in runs)]
    comparable = len(runs) > 1 and len({run.record.get("dataset") for run in runs}) == 1
    setup, results = ([_cells(row, runs, comparable) for row in rows] for rows in (SETUP, RESULTS))
    if len(runs) == 1:
        content = [element("div", table("Set-up", header, setup), table("Result", header, results), class_="tables")]
    else:
        differing = differences(runs)
        parts = {"What differs in the configuration": differing} if differing else {}
        content = [parted_table("The runs side by side", header, parts | {"Set-up": setup, "Result": results})]
        if not differing:
            content.append(paragraph("The configurations differ in nothing but run_dir.", class_="muted"))
    if comparable:
        content.append(paragraph("The best of a row is bold.", class_="muted"))
    return content + absent(runs, (run for run in runs if run.record), "record.json")


def differences(runs: list[Run]) -> list[list[str]]:
    """A row for each key of the configuration that is not the same in all runs; ``_target_`` follows from ``name``."""
    settings = [run.settings for run in runs]
    keys = dict.fromkeys(key for one in settings for key in one)
    groups = list(dict.fromkeys(key.partition(".")[0] for key in keys))
    told = [key for key in keys if key != "run_dir" and not key.endswith("._target_")]
    together = sorted(told, key=lambda key: groups.index(key.partition(".")[0]))
    rows = [[key, *(one.get(key, NOTHING) for one in settings)] for key in together]
    return [row for row in rows if len(set(row[1:])) > 1]


def value(record: dict[str, Any], key: str) -> Any:
    """The value at a dotted key; None where it was not recorded."""
    node: Any = record
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _cells(row: Row, runs: list[Run], comparable: bool) -> list[str]:
    values = [value(run.record, row.key) for run in runs]
    known = [one for one in values if isinstance(one, (int, float))]
    best = row.best(known) if row.best and comparable and len(set(known)) > 1 else None
    shown = [NOTHING if one in (None, "") else row.show(one) for one in values]
    return [
        row.label,
        *(element("b", text) if best is not None and one == best else text for one, text in zip(values, shown)),
    ]
