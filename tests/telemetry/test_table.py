"""Aligned Markdown tables, readable sizes and shares, the table of a sweep, and the log lines of each rank."""

import logging

import pytest

from fullgnn.report.sweep import sweep_table
from fullgnn.telemetry.table import format_table, num_bytes, percent, shares


def test_columns_align() -> None:
    table = format_table(("name", "value"), [("a", "1"), ("longer", "10.5")])
    assert table.splitlines() == [
        "| name   | value |",
        "|:-------|------:|",
        "| a      |     1 |",
        "| longer |  10.5 |",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (2.5e6, "2.50 MB"), (3e9, "3.00 GB"), (4e12, "4000.00 GB")],
)
def test_sizes(count: float, text: str) -> None:
    assert num_bytes(count) == text


def test_shares() -> None:
    assert (percent(0.81249), percent(None)) == ("81.25 %", "-")


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ([1, 1, 1], ["34 %", "33 %", "33 %"]),
        ([0.5, 0.25, 0.25, 0], ["50 %", "25 %", "25 %", "0 %"]),
        ([2, 2, 2, 1], ["29 %", "29 %", "28 %", "14 %"]),
        ([3, -1], ["100 %", "0 %"]),
        ([0, 0], ["-", "-"]),
        ([], []),
    ],
)
def test_shares_of_a_whole_add_up(parts: list[float], texts: list[str]) -> None:
    assert shares(parts) == texts


def row(overrides: str, **changes: object) -> dict:
    measured = ("epoch_time_ms", "spmm_time_ms", "comm_time_ms", "comm_bytes_per_epoch", "nnz_imbalance", "final_loss")
    return {
        "overrides": overrides,
        "status": "ok",
        "val_accuracy": None,
        "test_accuracy": 0.5,
        **changes,
    } | dict.fromkeys(measured, 1.0)


def test_a_job_is_named_by_what_sets_it_apart() -> None:
    lines = sweep_table([row("seed=0 optimizer.lr=1"), row("seed=1 optimizer.lr=1", status="failed")]).splitlines()
    assert lines[2].startswith("| seed=0 |     ok |") and lines[2].endswith("|   - | 50.00 % |       |")
    assert lines[3].startswith("| seed=1 | failed |") and "1.00" not in lines[3]
    assert len({len(line) for line in lines}) == 1


def test_a_job_that_diverged_has_no_loss() -> None:
    (line,) = sweep_table([row("seed=0") | {"final_loss": None}]).splitlines()[2:]
    assert line.split("|")[8].strip() == "-" and " ok " in line


def test_a_single_job_keeps_its_name() -> None:
    assert sweep_table([row("seed=0 optimizer.lr=1")]).splitlines()[2].startswith("| seed=0 optimizer.lr=1 |")


def test_another_metric_takes_the_place_of_an_accuracy_that_no_job_has() -> None:
    scores = {"train_micro_f1": 0.9, "val_micro_f1": 0.81234567, "test_micro_f1": None, "val_roc_auc": 0.5}
    jobs = [row("seed=0", test_accuracy=None) | scores, row("seed=1", test_accuracy=None)]
    jobs.append({"overrides": "seed=2", "status": "failed", "error": "out of memory"})
    header, _, *lines = sweep_table(jobs).splitlines()
    assert [cell.strip() for cell in header.split("|")[-4:-1]] == ["val micro_f1", "test micro_f1", "error"]
    cells = [[cell.strip() for cell in line.split("|")[-4:-1]] for line in lines]
    assert cells == [["0.812346", "-", ""], ["-", "-", ""], ["-", "-", "out of memory"]]
    assert "accuracy" not in header
    assert sweep_table([row("seed=0") | scores]) == sweep_table([row("seed=0")])  # it has an accuracy of the test nodes


@pytest.mark.parametrize("rank", [0, 2])
def test_other_ranks_only_warn_and_say_who_they_are(capsys, rank: int) -> None:
    from fullgnn.telemetry.logger import setup_logging

    package = logging.getLogger("fullgnn")
    before = package.handlers, package.level, package.propagate
    try:
        setup_logging(rank)
        setup_logging(rank)  # replaces the first call's handler
        log = logging.getLogger("fullgnn.somewhere")
        log.debug("debug")
        log.info("info")
        log.warning("watch out")
        log.error("no")
    finally:
        package.handlers, package.level, package.propagate = before
    expected = ["info", "warning: watch out", "error: no"]
    if rank:
        expected = [f"[rank {rank}] {line}" for line in expected[1:]]
    assert capsys.readouterr().err.splitlines() == expected
