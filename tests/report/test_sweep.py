"""The tables of a sweep: ``sweep.csv`` with its columns, and those on the screen, also over the seeds."""

from pathlib import Path
from typing import Any

from fullgnn.report.sweep import COLUMNS, MAX_ERROR, seeds_table, sweep_table, swept_keys
from tests.report.sweep_tables import finished, table_of


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
