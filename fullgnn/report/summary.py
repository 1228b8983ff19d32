"""The section that compares the runs in numbers: what differs in their configurations, their set-up, their results.

The best value of a row is bold if it is the best beyond the noise of its measurement:

1. ``clock``: the epoch time lies between its 20th and its 80th percentile; with several seeds, between the lowest and
   the highest of theirs. A record has no percentiles of other times: they vary in the same proportion.
2. ``sample``: a loss, a metric or a process's memory lies within one standard deviation of the mean over the
   replicates: the seeds and the splits. One run tells nothing of them: its values are known to half a per cent.
3. ``count``: what is counted, such as a cut, is exact, up to its standard deviation over the replicates.

A value is the best if its range does not overlap with that of any other run, its text differs from theirs, and no other
run is a replicate of this one: of replicates that are not shown by their mean, one is the best by chance.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fullgnn.report.content import COUNT, DIGITS, RATIO, PageBlock, Table, missing, whose
from fullgnn.report.means import better, metric_title, show_as, split_of
from fullgnn.report.replicates import NOTHING, Mean, Noise, Quantity, Records, Show, rows_of, std
from fullgnn.report.runs import FOLDER_KEYS, ShownRun, differing_keys, setting_and_draw
from fullgnn.telemetry.screen import num_bytes, percent

MILLISECONDS: Show = "{:.3f} ms".format
SECONDS: Show = "{:.2f} s".format

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
ACCURACIES = ("train_accuracy", "val_accuracy", "test_accuracy", "final_test_accuracy")
BOLD = (
    "Bold: the best of a row, where its range overlaps with no other. The epoch time ranges from its 20th to its 80th "
    "percentile, other times as far in proportion; a mean over seeds or splits, one standard deviation up and down. A "
    "loss, an accuracy or the memory of a process is taken as known to half a per cent where there is one run."
)
"""What is bold, in words; see above."""
Kind = tuple[str, str]
"""What ``setting_and_draw`` says of a run."""


def summary(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Tables with a column for each run."""
    times = [{f"epoch_time_ms.{name}": ms for name, ms in run.record.get("epoch_time_ms", {}).items()} for run in runs]
    records = [(run.record.get("metrics") or {}) | run.record | of_run for run, of_run in zip(runs, times)]
    comparable = len(runs) > 1 and len({run.record.get("dataset") for run in runs}) == 1
    kinds = [setting_and_draw(run) for run in runs] if comparable else []
    scores = dict.fromkeys(name for run in runs for name in run.record.get("metrics") or {} if name not in run.record)
    if not scores or any(record.get(name) is not None for record in records for name in ACCURACIES):
        scores = dict.fromkeys(ACCURACIES) | scores
    results = _rows((*RESULTS, *map(_score, scores)), records, kinds)
    groups = {"Set-up": _rows(SETUP, records, kinds), "Result": results}
    header = ["", *(run.name for run in runs)]
    if len(runs) == 1:
        yield "tables", [Table(heading, header, rows) for heading, rows in groups.items()]
    else:
        differing = differences(runs)
        groups = ({"What differs in the configuration": differing} if differing else {}) | groups
        yield "table", Table("The runs side by side", header, groups)
        if not differing:
            yield "note", "The configurations differ in nothing but run_dir."
    if comparable:
        yield "note", BOLD
    uncounted = [run for run in runs if run.record and run.record.get("edge_cut", 0) is None]
    if uncounted:
        of_whom = whose(uncounted, runs)
        yield "note", f"Not counted: edge cut and needed rows{of_whom} (train.statistics=true counts them)."
    yield from missing(runs, [run for run in runs if run.record], "record.json")


def _score(name: str) -> Quantity:
    """A row for a metric."""
    metric = name.removeprefix("final_")
    when = ", last epoch" if metric != name else ", best epoch" if split_of(name) else ""
    return Quantity(f"{metric_title(metric)}{when}", name, show_as(name), better(name))


def differences(runs: list[ShownRun]) -> list[list[str]]:
    """A row for each key of the configuration that is not the same in all runs; keys of one group stand together."""
    settings = [run.settings for run in runs]
    keys = [key for key in differing_keys(settings) if key not in FOLDER_KEYS]
    groups = list(dict.fromkeys(key.partition(".")[0] for setting in settings for key in setting))
    keys.sort(key=lambda key: groups.index(key.partition(".")[0]))
    return [[key, *(setting.get(key, NOTHING) for setting in settings)] for key in keys]


def _rows(quantities: Sequence[Quantity], records: Records, kinds: Sequence[Kind]) -> list[list[str]]:
    """A row for each quantity, the best in bold where there are ``kinds``: comparable runs."""
    rows = rows_of(quantities, records)
    for quantity, row in zip(quantities, rows):
        place = best(quantity, row[1:], records, kinds) if quantity.best and kinds else None
        if place is not None:
            row[1 + place] = Markup("<b>{}</b>").format(row[1 + place])
    return rows


def epoch_range(record: Mapping[str, Any]) -> tuple[float, float]:
    """Where the epoch time of a run lies, in milliseconds: from its p20 to its p80."""
    times = record["epoch_time_ms"]
    p20, p80 = (times["median"] if times.get(end) is None else times[end] for end in ("p20", "p80"))
    return getattr(p20, "low", p20), getattr(p80, "high", p80)


def value_range(value: float, noise: Noise, record: Mapping[str, Any]) -> tuple[float, float]:
    """Where a value of ``record`` lies, by the rules above."""
    if noise == "clock" and (median := record["epoch_time_ms"].get("median")):
        shortest, longest = epoch_range(record)
        return value * shortest / median, value * longest / median
    around = 0.005 * abs(value) if noise == "sample" and not isinstance(value, Mean) else std(value)
    return value - around, value + around


def best(quantity: Quantity, texts: Sequence[str], records: Records, kinds: Sequence[Kind]) -> int | None:
    """The place of the value that is the best beyond the noise; None if there is none.

    Args:
        quantity: whose values are compared; what is no number is left out.
        texts: the values as they are written.
        records: of the runs.
        kinds: ``setting_and_draw`` of each run.
    """
    values: list[Any] = [record.get(quantity.key) for record in records]
    known = [k for k, value in enumerate(values) if isinstance(value, (int, float))]
    if len(known) < 2:
        return None
    sign = 1 if quantity.best is min else -1
    first, *others = sorted(known, key=lambda k: sign * values[k])
    setting, draw = kinds[first]
    if any(texts[k] == texts[first] or (kinds[k][0] == setting and kinds[k][1] != draw) for k in others):
        return None
    ends = [[sign * end for end in value_range(values[k], quantity.noise, records[k])] for k in (first, *others)]
    return first if max(ends[0]) < min(map(min, ends[1:])) else None
