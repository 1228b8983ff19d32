"""The comparison at the end of a Hydra sweep."""

import csv
import logging
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from fullgnn.errors import FullGNNError
from fullgnn.record import RunRecord
from fullgnn.report.table import format_table, num_bytes, percent

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
    "reorder",
    "reorder_scope",
    "seed",
    "epoch_time_ms",
    "spmm_time_ms",
    "comm_time_ms",
    "comm_bytes_per_epoch",
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
    """Collects what each job returned; prints one table and writes ``sweep.csv`` when the last has ended.

    A job returns its ``RunRecord``, or the ``FullGNNError`` that ended it. If any failed, the sweep exits with 1.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode.name != "MULTIRUN":
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
            row |= {"status": "failed", "error": str(outcome)}
            if not isinstance(outcome, FullGNNError):
                log.error("job %s failed: %s: %s", row["job"], type(outcome).__name__, outcome)
        self._rows.append(row)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        if not self._rows:
            return
        path = Path(str(config.hydra.sweep.dir)) / "sweep.csv"
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows(self._rows)
        log.info("\n%s\n%s", sweep_table(self._rows), path)
        failed = [row for row in self._rows if row["status"] == "failed"]
        for row in failed:
            log.error("job %s (%s) failed: %s", row["job"], row["overrides"], row["error"])
        if failed:
            raise SystemExit(1)


def sweep_table(rows: list[dict[str, Any]]) -> str:
    """One line a job, in the order they ran."""
    cells = []
    for row in rows:
        if row["status"] == "ok":
            cells.append(
                (
                    row["overrides"],
                    "ok",
                    f"{row['epoch_time_ms']:.2f}",
                    f"{row['spmm_time_ms']:.2f}",
                    f"{row['comm_time_ms']:.2f}",
                    num_bytes(row["comm_bytes_per_epoch"]),
                    f"{row['nnz_imbalance']:.3f}",
                    f"{row['final_loss']:.5f}",
                    percent(row["val_accuracy"]),
                    percent(row["test_accuracy"]),
                )
            )
        else:
            cells.append((row["overrides"], "failed", *["-"] * 8))
    return format_table(
        ("job", "status", "epoch ms", "SpMM ms", "comm ms", "received", "imbalance", "loss", "val", "test"), cells
    )
