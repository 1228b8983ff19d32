"""The table of a Hydra sweep, on the screen and in ``sweep.csv``."""

import csv
import logging
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ValueType
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from fullgnn.distributed import check_tasks, under_torchrun
from fullgnn.distributed.command import fail
from fullgnn.errors import ConfigError, FullGNNError
from fullgnn.report.means import Settings, ranked, show_as, split_of, write_means
from fullgnn.report.replicates import Quantity, Records, by_key, by_record, merged, without_draws
from fullgnn.storage.folder import MEANS_FILES, TABLE_FILE, jobs_beside, prepare_sweep, replacing, writing_to
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.screen import folded, format_narrow_table, num_bytes, percent, screen_width, table_width

log = logging.getLogger(__name__)

COLUMNS = """
    job status overrides dataset model scheme world_size replication partition reorder reorder_scope kernel
    stage_order exchange split_rows seed epoch_time_ms spmm_time_ms comm_time_ms comm_bytes_per_epoch
    spmm_columns_per_epoch edge_cut needed_row_ratio nnz_imbalance peak_memory_bytes reorder_time_s final_loss
    val_accuracy test_accuracy final_test_accuracy error run_dir
""".split()
"""The fixed columns of ``sweep.csv``. Those of the swept keys stand behind ``overrides``, those of other metrics than
the accuracy at the end."""
MAX_ERROR = 60
"""Characters of an error in the table on the screen; ``sweep.csv`` has the whole of it."""
MEASURED = (
    Quantity("epoch ms", "epoch_time_ms", "{:.2f}".format),
    Quantity("SpMM ms", "spmm_time_ms", "{:.2f}".format),
    Quantity("comm ms", "comm_time_ms", "{:.2f}".format),
    Quantity("received", "comm_bytes_per_epoch", num_bytes),
    Quantity("imbalance", "nnz_imbalance", "{:.3f}".format),
    Quantity("loss", "final_loss", "{:.5f}".format),
    Quantity("val", "val_accuracy", percent),
    Quantity("test", "test_accuracy", percent),
)
"""Columns of the table on the screen, and the columns of ``sweep.csv`` from which they are."""
LEAST_IMPORTANT = ("imbalance", "SpMM ms", "comm ms", "error", "received", "loss", "status")
"""Headings of the columns that a narrow screen has no room for, in this order; ``sweep.csv`` has all of them."""


class SweepReport(Callback):
    """Checks the folder of a sweep, adds a row to ``sweep.csv`` after each job, and prints a table at the end.

    A job returns its ``RunRecord``, or the exception that ended it. If any job failed, the sweep exits with 1. Hydra
    turns exceptions of a callback into warnings, so what must end the sweep is a ``SystemExit``.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._swept: list[str] = []

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if under_torchrun():
            fail(ConfigError("a sweep starts its own processes: use python -m fullgnn.train -m ..., without torchrun"))
        with _ending_at_errors():
            check_tasks(config.runtime, one_process=True)
            prepare_sweep(_csv_path(config).parent, config.overwrite, resuming=config.resume == "auto")
        self._swept = swept_keys(list(config.hydra.overrides.task))

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        if config.hydra.mode == RunMode.MULTIRUN:
            log.info("\njob %d: %s", config.hydra.job.num, " ".join(config.hydra.overrides.task))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        outcome, overrides, job = job_return._return_value, job_return.overrides or [], config.hydra.job.num
        row: dict[str, Any] = {"job": job, "overrides": " ".join(overrides), "run_dir": config.hydra.runtime.output_dir}
        if isinstance(outcome, RunRecord):
            fields = {column: value for column, value in vars(outcome).items() if column in COLUMNS}
            metrics = {name: value for name, value in outcome.metrics.items() if not hasattr(outcome, name)}
            time, received = outcome.epoch_time_ms["median"], sum(outcome.comm_bytes_per_epoch.values())
            row = fields | metrics | row | {"epoch_time_ms": time, "comm_bytes_per_epoch": received, "status": "ok"}
        else:
            kind = "" if isinstance(outcome, FullGNNError) else f"{type(outcome).__name__}: "
            row |= {"status": "failed", "error": kind + " ".join(str(outcome).split())}
        self._rows.append(row | _swept_values(self._swept, overrides, row))
        path = _csv_path(config)
        with _ending_at_errors(), writing_to("run_dir", path.parent), replacing(path) as temporary:
            with open(temporary, "w", newline="") as file:
                writer = csv.DictWriter(file, _columns(self._swept, self._rows), restval="")
                writer.writeheader()
                writer.writerows(self._rows)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        width = screen_width()
        tables = filter(None, (sweep_table(self._rows, width), seeds_table(self._rows, width)))
        path = _csv_path(config)
        with _ending_at_errors(), writing_to("run_dir", path.parent):
            files = [path, *write_means(settings_of(self._rows), path.parent, MEANS_FILES)]
        log.info("\n%s\n%s", "\n\n".join(tables), "\n".join(map(str, files)))
        if others := jobs_beside(path.parent, {row["job"] for row in self._rows}):
            told = "folders of an earlier sweep that had more jobs, which are not in the table: %s"
            log.warning(told, ", ".join(others))
        failed = [row for row in self._rows if row["status"] == "failed"]
        for row in failed:
            log.error("job %s (%s) failed: %s", row["job"], row["overrides"], row["error"])
        if failed:
            raise SystemExit(1)


@contextmanager
def _ending_at_errors() -> Iterator[None]:
    """End the sweep at a user error of the ``with`` block."""
    try:
        yield
    except ConfigError as error:
        fail(error)


def _csv_path(config: DictConfig) -> Path:
    return Path(str(config.hydra.sweep.dir)).absolute() / TABLE_FILE


def swept_keys(arguments: Sequence[str]) -> list[str]:
    """The keys to which the command line gives several values."""
    return [
        override.key_or_group
        for override in OverridesParser.create().parse_overrides(list(arguments))
        if override.is_sweep_override()
        and (override.value_type is ValueType.GLOB_CHOICE_SWEEP or len(list(override.sweep_string_iterator())) > 1)
    ]


def _swept_values(keys: Sequence[str], overrides: Sequence[str], row: dict[str, Any]) -> dict[str, Any]:
    """The values of the swept ``keys`` in one job, as the command line gives them.

    Where the record of the job says otherwise in a fixed column, as that of ``kernel=auto`` does, its value moves to a
    column such as ``kernel_used``.
    """
    given = {key.lstrip("+").partition("@")[0]: value for key, _, value in (word.partition("=") for word in overrides)}
    values: dict[str, Any] = {key: given[key] for key in keys if key in given and key != "run_dir"}
    return values | {f"{key}_used": row[key] for key in values if key in row and str(row[key]) != values[key]}


def _columns(swept: Sequence[str], rows: list[dict[str, Any]]) -> list[str]:
    behind = COLUMNS.index("overrides") + 1
    others = _other_columns(rows)
    keys = [key for key in swept if key not in COLUMNS] + [name for name in others if name.endswith("_used")]
    return [*COLUMNS[:behind], *keys, *COLUMNS[behind:], *(name for name in others if name not in keys)]


def _other_columns(rows: list[dict[str, Any]]) -> list[str]:
    """What the jobs have beside the fixed columns: mostly metrics."""
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name not in COLUMNS]


def sweep_table(rows: list[dict[str, Any]], width: int = sys.maxsize) -> str:
    """One line for each job, in the order in which they ran, named by the overrides that only it has.

    Args:
        rows: those of ``sweep.csv``, with numbers that are not texts.
        width: columns of the screen. What does not fit is left to ``sweep.csv``; see ``_narrow``.
    """
    failed = any(row["status"] == "failed" for row in rows)
    error = Quantity("error", "error", lambda told: textwrap.shorten(told, MAX_ERROR, placeholder=" ..."))
    columns = [Quantity("status", "status"), *_measured(rows), *([error] if failed else [])]
    names = distinguishing([row["overrides"].split(" ") for row in rows])
    told = [row if row["status"] == "ok" else {"status": row["status"]} for row in rows]
    # what is empty would be a dash
    about = [{"name": name or " ", "error": row.get("error") or " "} for name, row in zip(names, rows)]
    records = [{"number": number, **told[number], **about[number]} for number in range(len(rows))]
    return _narrow("job", columns, records, width)


def seeds_table(rows: list[dict[str, Any]], width: int = sys.maxsize) -> str:
    """One line for the finished jobs that differ in seeds and splits alone: means and standard deviations, the best
    first; see ``means.py``.

    It is empty if no two jobs differ in these alone.

    Args:
        width: see ``sweep_table``.
    """
    settings = ranked(settings_of(rows))
    if not any(setting["runs"] > 1 for setting in settings.values()):
        return ""
    records = [{**settings[name], "name": name, "number": f"#{number}"} for number, name in enumerate(settings)]
    return _narrow("mean ± std", [Quantity("runs", "runs"), *_measured(rows)], records, width)


def settings_of(rows: list[dict[str, Any]]) -> Settings:
    """The settings of the finished jobs, with the means of all their numbers: a setting has the jobs that differ in
    seeds and splits alone.

    Args:
        rows: see ``sweep_table``.
    """
    columns = [*(quantity.key for quantity in MEASURED), *_other_columns(rows)]
    groups = by_key((row for row in rows if row["status"] == "ok"), lambda row: without_draws(row["overrides"]))
    names = distinguishing([setting.split(" ") for setting in groups]) if len(groups) > 1 else ["all jobs"]
    jobs = [[{column: row.get(column) for column in columns} for row in group] for group in groups.values()]
    return {name: merged(of_setting) | {"runs": len(of_setting)} for name, of_setting in zip(names, jobs)}


def _narrow(heading: str, columns: list[Quantity], records: Records, width: int) -> str:
    """A table of at most ``width`` characters a line, with a line for each record, which begins with its name.

    First, columns that say least are left out. If the names are too long even then, numbers take their place, and each
    number is explained below the table.
    """
    legend: list[str] = []
    has_failed = any(column.key == "error" for column in columns)  # the status of a job is then of interest
    droppable = LEAST_IMPORTANT[: -1 if has_failed else None]
    by_name, by_number = (by_record([Quantity(heading, key), *columns], records, "-") for key in ("name", "number"))
    text, lacking = format_narrow_table(*by_name, width, droppable)
    if table_width(text) > width:
        text, lacking = format_narrow_table(*by_number, width, droppable)
        for record in records:
            told = f"{record['number']}: {record['name']}"
            legend += textwrap.wrap(told, width, subsequent_indent="    ", break_on_hyphens=False)
    if lacking:
        legend.append(folded(f"{TABLE_FILE} also has {', '.join(lacking)}.", width))
    return "\n".join([text, *([""] if legend else []), *legend])


def _measured(rows: list[dict[str, Any]]) -> tuple[Quantity, ...]:
    """``MEASURED``, with the first metric of the validation nodes in place of an accuracy that no job has."""
    first = next((name for name in _other_columns(rows) if split_of(name) == "val"), None)
    if first is None or any(row.get(quantity.key) is not None for row in rows for quantity in MEASURED[-2:]):
        return MEASURED
    metric = first.removeprefix("val_")
    scores = [Quantity(f"{split} {metric}", f"{split}_{metric}", show_as(first)) for split in ("val", "test")]
    return *MEASURED[:-2], *scores


def distinguishing(overrides: list[list[str]]) -> list[str]:
    """For each job its overrides without those that all jobs share; a single job keeps all of them."""
    common = set.intersection(*map(set, overrides)) if len(overrides) > 1 else set()
    return [" ".join(override for override in of_job if override not in common) for of_job in overrides]
