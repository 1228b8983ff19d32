"""The section that compares the runs in numbers: what differs in their configurations, their set-up, their results."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from fullgnn.report.content import COUNT, DIGITS, NOTHING, RATIO, Block, Show, Table, missing
from fullgnn.report.runs import Run
from fullgnn.telemetry.table import num_bytes, percent

MILLISECONDS: Show = "{:.3f} ms".format
SECONDS: Show = "{:.2f} s".format


class Row(NamedTuple):
    label: str
    key: str  # of record.json, dotted
    show: Show = str
    best: Callable[[Sequence[float]], float] | None = None  # ``min`` or ``max``; None: no value is better


SETUP = (
    Row("dataset", "dataset"),
    Row("nodes", "num_nodes", COUNT),
    Row("stored non-zeros", "num_edges", COUNT),
    Row("non-zeros, normalised", "nnz", COUNT),
    Row("model", "model"),
    Row("parameters", "num_parameters", COUNT),
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
    Row("epoch, median", "epoch_time_ms.median", MILLISECONDS, min),
    Row("epoch, 20th percentile", "epoch_time_ms.p20", MILLISECONDS),
    Row("epoch, 80th percentile", "epoch_time_ms.p80", MILLISECONDS),
    Row("SpMM", "spmm_time_ms", MILLISECONDS, min),
    Row("communication, exposed", "comm_time_ms", MILLISECONDS, min),
    Row("dense", "dense_time_ms", MILLISECONDS, min),
    Row("other", "other_time_ms", MILLISECONDS, min),
    Row("communication hidden", "comm_hidden", percent, max),
    Row("received, rank and epoch", "comm_bytes_per_epoch", lambda received: num_bytes(sum(received.values()))),
    Row("non-zeros, max / mean", "nnz_imbalance", RATIO, min),
    Row("the same, where stages wait", "stage_imbalance", RATIO, min),
    Row("edge cut", "edge_cut", percent, min),
    Row("needed rows", "needed_row_ratio", percent, min),
    Row("peak memory, process", "peak_memory_bytes", num_bytes, min),
    Row("peak memory, tensors", "peak_tensor_bytes", num_bytes, min),
    Row("set-up", "setup_time_s", SECONDS, min),
    Row("last training loss", "final_loss", DIGITS, min),
    Row("best epoch", "best_epoch"),
    Row("train accuracy, best epoch", "train_accuracy", percent, max),
    Row("validation accuracy, best epoch", "val_accuracy", percent, max),
    Row("test accuracy, best epoch", "test_accuracy", percent, max),
    Row("test accuracy, last epoch", "final_test_accuracy", percent, max),
)


def summary(runs: list[Run]) -> Iterator[Block]:
    """Tables with a column for each run."""
    header = ["", *(run.name for run in runs)]
    comparable = len(runs) > 1 and len({run.record.get("dataset") for run in runs}) == 1
    groups = {
        heading: [[row.label, *_cells(row, runs, comparable)] for row in rows]
        for heading, rows in (("Set-up", SETUP), ("Result", RESULTS))
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
        yield "note", "The best of a row is bold."
    yield from missing(runs, [run for run in runs if run.record], "record.json")


def differences(runs: list[Run]) -> list[list[str]]:
    """A row for each key of the configuration that is not the same in all runs; ``_target_`` follows from ``name``."""
    settings = [run.settings for run in runs]
    keys = [key for key in dict.fromkeys(key for one in settings for key in one) if not key.endswith("._target_")]
    groups = list(dict.fromkeys(key.partition(".")[0] for key in keys))
    together = sorted(keys, key=lambda key: groups.index(key.partition(".")[0]))
    rows = [[key, *(one.get(key, NOTHING) for one in settings)] for key in together if key != "run_dir"]
    return [row for row in rows if len(set(row[1:])) > 1]


def _cells(row: Row, runs: list[Run], comparable: bool) -> list[str]:
    """The row's value of each run, the best in bold where the runs are comparable."""
    values = [_value(run.record, row.key) for run in runs]
    known = [value for value in values if isinstance(value, (int, float))]
    best = row.best(known) if row.best and comparable and len(set(known)) > 1 else None
    texts = [NOTHING if value in (None, "") else row.show(value) for value in values]
    return [
        Markup("<b>{}</b>").format(text) if best is not None and value == best else text
        for value, text in zip(values, texts)
    ]


def _value(record: dict[str, Any], key: str) -> Any:
    """The value at a dotted key; None where it was not recorded."""
    node: Any = record
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node
