"""``sweep.csv`` as a sweep writes it after jobs whose outcomes are given."""

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

from fullgnn.report.sweep import SweepReport
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
