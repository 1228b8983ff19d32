"""The tables of a sweep: ``sweep.csv`` with its columns, and those on the screen, also over the seeds."""

import csv
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hydra.core.utils import JobReturn
from hydra.types import RunMode
from omegaconf import OmegaConf

from fullgnn.report.sweep import COLUMNS, MAX_ERROR, SweepReport, seeds_table, sweep_table, swept_keys
from fullgnn.storage.record import RunRecord


def finished(metrics: dict[str, float | None], **changes: Any) -> RunRecord:
    values: dict[str, Any] = {field.name: None for field in fields(RunRecord)}
    values |= {"epoch_time_ms": {"median": 1.0}, "comm_bytes_per_epoch": {}, "metrics": metrics}
    return RunRecord(**values | changes)


def table_of(
    folder: Path, *outcomes: Any, given: Sequence[str] = (), overrides: Sequence[list[str]] = (), end: bool = False
) -> tuple[list[str], list[dict[str, str]]]:
    """The header and the rows of ``sweep.csv`` after jobs with these ``outcomes``.

    Args:
        given: the overrides on the command line.
        overrides: those of each job; without them, they have seeds.
        end: whether the sweep ends, with the status 1 if a job has failed.
    """
    report = SweepReport()
    hydra = {"mode": RunMode.MULTIRUN, "sweep": {"dir": str(folder)}, "overrides": {"task": list(given)}}
    report.on_multirun_start(OmegaConf.create({"hydra": hydra, "overwrite": True, "resume": "never", "runtime": {}}))
    for job, outcome in enumerate(outcomes):
        place = {"job": {"num": job}, "runtime": {"output_dir": f"run/{job}"}}
        told = overrides[job] if overrides else [f"seed={job}"]
        report.on_job_end(OmegaConf.create({"hydra": hydra | place}), JobReturn(overrides=told, _return_value=outcome))
    if end:
        failed = any(isinstance(outcome, Exception) for outcome in outcomes)
        with pytest.raises(SystemExit) if failed else nullcontext():
            report.on_multirun_end(OmegaConf.create({"hydra": hydra}))
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


def test_each_swept_key_has_a_column(tmp_path: Path) -> None:
    given = ["kernel=auto,csr", "+optimizer.lr=range(0,2)", "optimizer.weight_decay=choice(0)", "seed=0", "run_dir=a,b"]
    assert swept_keys(given) == ["kernel", "optimizer.lr", "run_dir"]
    jobs = [["kernel=auto", "+optimizer.lr=0", "seed=0", "run_dir=a"], ["kernel=csr", "+optimizer.lr=1", "seed=0"]]
    jobs.append(["kernel=csr", "+optimizer.lr=0", "seed=0"])
    outcomes = [finished({"val_f1": 0.5}, kernel="blocked"), ValueError("no"), finished({}, kernel="csr")]
    header, rows = table_of(tmp_path, *outcomes, given=given, overrides=jobs)
    behind = COLUMNS.index("overrides") + 1
    assert header == [*COLUMNS[:behind], "optimizer.lr", "kernel_used", *COLUMNS[behind:], "val_f1"]
    assert [row["optimizer.lr"] for row in rows] == ["0", "1", "0"]
    assert [row["kernel"] for row in rows] == ["auto", "csr", "csr"]  # also of the job that failed
    assert [row["kernel_used"] for row in rows] == ["blocked", "", ""]
    assert [row["run_dir"] for row in rows] == ["run/0", "run/1", "run/2"]


def job(overrides: str, **changes: Any) -> dict[str, Any]:
    return {"overrides": overrides, "status": "ok", "epoch_time_ms": 2.0, "test_accuracy": 0.5} | changes


def test_the_error_of_a_job_stands_beside_it(tmp_path: Path) -> None:
    message = "ConfigError: " + "a long story " * 20
    _header, rows = table_of(tmp_path, finished({}), ValueError(message))
    assert rows[1]["error"] == f"ValueError: {message.strip()}"
    lines = sweep_table([job("seed=0"), job("seed=1", status="failed", error=message)]).splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert cells[0][-2] == "error" and cells[2][-2] == ""
    assert cells[3][-2].startswith("ConfigError: a long story") and len(cells[3][-2]) <= MAX_ERROR
    assert "error" not in sweep_table([job("seed=0")])


def test_jobs_that_differ_in_the_seed_have_a_mean() -> None:
    rows = [job(f"seed={seed} lr={lr}", test_accuracy=0.5 + seed / 4) for lr in (1, 2) for seed in (0, 1)]
    rows[1]["epoch_time_ms"] = 4.0
    rows[2] |= {"status": "failed", "error": "no"}
    header, _, *lines = seeds_table(rows).splitlines()
    assert [cell.strip() for cell in header.split("|")[1:4]] == ["mean ± std", "runs", "epoch ms"]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [(line[:3], line[-1]) for line in cells] == [
        (["lr=1", "2", "3.00 ± 1.41"], "62.50 ± 17.68 %"),
        (["lr=2", "1", "2.00"], "75.00 %"),
    ]
    assert "all jobs" in seeds_table(rows[:2])
    assert seeds_table([rows[0], rows[2], rows[3]]) == ""  # no two finished jobs differ in the seed alone
