"""The table of a Hydra sweep, on the screen and in ``sweep.csv``."""

import csv
import logging
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from fullgnn.distributed import under_torchrun
from fullgnn.distributed.command import fail
from fullgnn.errors import ConfigError, FullGNNError
from fullgnn.report.metrics import show_as, split_of
from fullgnn.storage.atomic import replacing
from fullgnn.storage.folder import TABLE_FILE, jobs_beside, prepare_sweep
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.table import format_table, num_bytes, percent

log = logging.getLogger(__name__)

COLUMNS = """
    job status overrides dataset model scheme world_size replication partition reorder reorder_scope kernel
    stage_order exchange split_rows seed epoch_time_ms spmm_time_ms comm_time_ms comm_bytes_per_epoch
    spmm_columns_per_epoch edge_cut needed_row_ratio nnz_imbalance peak_memory_bytes reorder_time_s final_loss
    val_accuracy test_accuracy final_test_accuracy error run_dir
""".split()
"""The first columns of ``sweep.csv``; those of other metrics than the accuracy follow."""
MEASURED = {
    "epoch ms": ("epoch_time_ms", "{:.2f}".format),
    "SpMM ms": ("spmm_time_ms", "{:.2f}".format),
    "comm ms": ("comm_time_ms", "{:.2f}".format),
    "received": ("comm_bytes_per_epoch", num_bytes),
    "imbalance": ("nnz_imbalance", "{:.3f}".format),
    "loss": ("final_loss", "{:.5f}".format),
    "val": ("val_accuracy", percent),
    "test": ("test_accuracy", percent),
}
"""Headings of the table on the screen: a column of ``sweep.csv``, and how its numbers are written."""


class SweepReport(Callback):
    """Checks the folder of a sweep, adds a row to ``sweep.csv`` after each job, and prints a table at the end.

    A job returns its ``RunRecord``, or the exception that ended it. If any job failed, the sweep exits with 1. Hydra
    turns exceptions of a callback into warnings, so what must end the sweep is a ``SystemExit``.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if under_torchrun():
            fail(ConfigError("a sweep starts its own processes: use python -m fullgnn.train -m ..., without torchrun"))
        try:
            prepare_sweep(_csv_path(config).parent, config.overwrite, resuming=config.resume == "auto")
        except ConfigError as error:
            fail(error)
        self._write(config)  # an empty table, to know now whether the folder can be written

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        if config.hydra.mode == RunMode.MULTIRUN:
            log.info("\njob %d: %s", config.hydra.job.num, " ".join(config.hydra.overrides.task))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        outcome = job_return._return_value
        row: dict[str, Any] = {
            "job": config.hydra.job.num,
            "overrides": " ".join(job_return.overrides or []),
            "run_dir": config.hydra.runtime.output_dir,
        }
        if isinstance(outcome, RunRecord):
            row |= {column: getattr(outcome, column) for column in COLUMNS if hasattr(outcome, column)}
            row["epoch_time_ms"] = outcome.epoch_time_ms["median"]
            row["comm_bytes_per_epoch"] = sum(outcome.comm_bytes_per_epoch.values())
            row |= {name: value for name, value in outcome.metrics.items() if not hasattr(outcome, name)}
            row["status"] = "ok"
        else:
            kind = "" if isinstance(outcome, FullGNNError) else f"{type(outcome).__name__}: "
            row |= {"status": "failed", "error": kind + " ".join(str(outcome).split())}
        self._rows.append(row)
        self._write(config)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        log.info("\n%s\n%s", sweep_table(self._rows), _csv_path(config))
        if others := jobs_beside(_csv_path(config).parent, {row["job"] for row in self._rows}):
            log.warning(
                "folders of an earlier sweep that had more jobs, which are not in the table: %s", ", ".join(others)
            )
        failed = [row for row in self._rows if row["status"] == "failed"]
        for row in failed:
            log.error("job %s (%s) failed: %s", row["job"], row["overrides"], row["error"])
        if failed:
            raise SystemExit(1)

    def _write(self, config: DictConfig) -> None:
        path = _csv_path(config)
        try:
            with replacing(path) as temporary, open(temporary, "w", newline="") as file:
                writer = csv.DictWriter(file, [*COLUMNS, *_other_metrics(self._rows)], restval="")
                writer.writeheader()
                writer.writerows(self._rows)
        except OSError as error:
            fail(ConfigError(f"run_dir={path.parent} cannot be written ({error.strerror}): choose another folder"))


def _csv_path(config: DictConfig) -> Path:
    return Path(str(config.hydra.sweep.dir)).absolute() / TABLE_FILE


def _other_metrics(rows: list[dict[str, Any]]) -> list[str]:
    """The metrics of the jobs that have no fixed column."""
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name not in COLUMNS]


def sweep_table(rows: list[dict[str, Any]]) -> str:
    """One line for each job, in the order in which they ran, named by the overrides that only it has.

    Args:
        rows: those of ``sweep.csv``, with numbers that are not texts.
    """
    names = distinguishing([row["overrides"].split(" ") for row in rows])
    measured = _measured(rows)
    cells = [
        [name, row["status"], *(_cell(row, column, show) for column, show in measured.values())]
        for name, row in zip(names, rows)
    ]
    return format_table(["job", "status", *measured], cells)


def _measured(rows: list[dict[str, Any]]) -> dict[str, tuple[str, Any]]:
    """``MEASURED``, with the first metric of the validation nodes in place of an accuracy that no job has."""
    first = next((name for name in _other_metrics(rows) if split_of(name) == "val"), None)
    accurate = any(row.get(column) is not None for row in rows for column in ("val_accuracy", "test_accuracy"))
    if first is None or accurate:
        return MEASURED
    metric = first.removeprefix("val_")
    kept = {heading: column for heading, column in MEASURED.items() if heading not in ("val", "test")}
    return kept | {f"{split} {metric}": (f"{split}_{metric}", show_as(first)) for split in ("val", "test")}


def _cell(row: dict[str, Any], column: str, show: Any) -> str:
    return "-" if row["status"] != "ok" or row.get(column) is None else show(row[column])


def distinguishing(overrides: list[list[str]]) -> list[str]:
    """For each job its overrides without those that all jobs share; a single job keeps all of them."""
    common = set.intersection(*map(set, overrides)) if len(overrides) > 1 else set()
    return [" ".join(override for override in of_job if override not in common) for of_job in overrides]
