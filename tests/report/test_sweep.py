"""The table of a sweep in ``sweep.csv``: its fixed columns, and one for each further metric that a job has."""

import csv
from dataclasses import fields
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.types import RunMode
from omegaconf import OmegaConf

from fullgnn.report.sweep import COLUMNS, SweepReport
from fullgnn.storage.record import RunRecord


def finished(metrics: dict[str, float | None]) -> RunRecord:
    values: dict[str, Any] = {field.name: None for field in fields(RunRecord)}
    return RunRecord(**values | {"epoch_time_ms": {"median": 1.0}, "comm_bytes_per_epoch": {}, "metrics": metrics})


def table_of(folder: Path, *outcomes: Any) -> tuple[list[str], list[dict[str, str]]]:
    """The header and the rows of ``sweep.csv`` after jobs with these ``outcomes``."""
    report = SweepReport()
    for job, outcome in enumerate(outcomes):
        place = {"mode": RunMode.MULTIRUN, "job": {"num": job}, "runtime": {"output_dir": f"run/{job}"}}
        config = OmegaConf.create({"hydra": place | {"sweep": {"dir": str(folder)}}})
        report.on_job_end(config, JobReturn(overrides=[f"seed={job}"], _return_value=outcome))
    with open(folder / "sweep.csv", newline="") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or ()), list(reader)


def test_metrics_follow_the_fixed_columns(tmp_path: Path) -> None:
    first = finished({"val_micro_f1": 0.5, "test_micro_f1": None})
    second = finished({"test_micro_f1": 0.25, "final_test_micro_f1": 0.75, "test_accuracy": 0.125})
    header, rows = table_of(tmp_path, first, ValueError("of a user"), second)
    assert header == [*COLUMNS, "val_micro_f1", "test_micro_f1", "final_test_micro_f1"]
    assert [row["val_micro_f1"] for row in rows] == ["0.5", "", ""]
    assert [row["test_micro_f1"] for row in rows] == ["", "", "0.25"]
    assert rows[2]["test_accuracy"] == ""  # the field of the record
    assert rows[1]["status"] == "failed"


def test_a_classification_has_the_fixed_columns_alone(tmp_path: Path) -> None:
    names = ("train_accuracy", "val_accuracy", "test_accuracy", "final_test_accuracy")
    header, _ = table_of(tmp_path, finished(dict.fromkeys(names, 0.5)), finished({}))
    assert header == COLUMNS
