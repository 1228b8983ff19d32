"""The comparison at the end of a Hydra sweep."""

import csv
import logging
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from fullgnn.distributed import under_torchrun, wait_for_others
from fullgnn.errors import FullGNNError
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.table import format_table, num_bytes, percent

log = logging.getLogger(__name__)

COLUMNS = (
    "job",
    "status",
    "overrides",
    "dataset",
    "model",
    "scheme",
    "world_size",
    "replication",
    "partition",
    "reorder",
    "reorder_scope",
    "kernel",
    "stage_order",
    "exchange",
    "split_rows",
    "seed",
    "epoch_time_ms",
    "spmm_time_ms",
    "comm_time_ms",
    "comm_bytes_per_epoch",
    "spmm_columns_per_epoch",
    "edge_cut",
    "needed_row_ratio",
    "nnz_imbalance",
    "peak_memory_bytes",
    "reorder_time_s",
    "final_loss",
    "val_accuracy",
    "test_accuracy",
    "final_test_accuracy",
    "error",
    "run_dir",
)


class SweepReport(Callback):
    """Collects what each job returned; prints one table when the last has ended. ``sweep.csv`` grows job by job.

    A job returns its ``RunRecord``, or the exception that ended it. If any failed, the sweep exits with 1. Hydra turns
    exceptions of a callback into warnings, so what must end the sweep is a ``SystemExit``.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if under_torchrun():
            _stop("a sweep starts its own processes: use python -m fullgnn.train -m ..., without torchrun")
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
            row["status"] = "ok"
        else:
            kind = "" if isinstance(outcome, FullGNNError) else f"{type(outcome).__name__}: "
            row |= {"status": "failed", "error": kind + " ".join(str(outcome).split())}
        self._rows.append(row)
        self._write(config)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        log.info("\n%s\n%s", sweep_table(self._rows), _csv_path(config))
        failed = [row for row in self._rows if row["status"] == "failed"]
        for row in failed:
            log.error("job %s (%s) failed: %s", row["job"], row["overrides"], row["error"])
        if failed:
            raise SystemExit(1)

    def _write(self, config: DictConfig) -> None:
        path = _csv_path(config)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, restval="")
                writer.writeheader()
                writer.writerows(self._rows)
        except OSError as error:
            _stop(f"run_dir={path.parent} cannot be written ({error.strerror}): choose another folder")


def _csv_path(config: DictConfig) -> Path:
    return Path(str(config.hydra.sweep.dir)).absolute() / "sweep.csv"


def _stop(message: str) -> NoReturn:
    log.error("%s", message)
    if under_torchrun():
        wait_for_others()
    raise SystemExit(1)


def sweep_table(rows: list[dict[str, Any]]) -> str:
    """One line a job, in the order they ran, named by the overrides in which it differs from the others."""
    common = set.intersection(*(set(row["overrides"].split(" ")) for row in rows)) if len(rows) > 1 else set()
    cells: list[tuple[str, ...]] = []
    for row in rows:
        name = " ".join(override for override in row["overrides"].split(" ") if override not in common)
        if row["status"] == "ok":
            cells.append(
                (
                    name,
                    "ok",
                    f"{row['epoch_time_ms']:.2f}",
                    f"{row['spmm_time_ms']:.2f}",
                    f"{row['comm_time_ms']:.2f}",
                    num_bytes(row["comm_bytes_per_epoch"]),
                    f"{row['nnz_imbalance']:.3f}",
                    "-" if row["final_loss"] is None else f"{row['final_loss']:.5f}",
                    percent(row["val_accuracy"]),
                    percent(row["test_accuracy"]),
                )
            )
        else:
            cells.append((name, "failed", *["-"] * 8))
    return format_table(
        ("job", "status", "epoch ms", "SpMM ms", "comm ms", "received", "imbalance", "loss", "val", "test"), cells
    )
