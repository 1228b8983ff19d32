"""The log of each rank, long phases that are announced, and progress: one line on a terminal, ten lines in a file."""

import io
import logging
import sys

import pytest

from fullgnn.telemetry import log as log_module
from fullgnn.telemetry.log import Progress, announce, counted, setup_logging
from fullgnn.telemetry.meter import Cost, EpochRecord


def record(epoch: int, *accuracies: float | None, metric: str = "accuracy") -> EpochRecord:
    metrics = {f"{split}_{metric}": value for split, value in zip(("train", "val", "test"), accuracies)}
    return EpochRecord(epoch, 0.5, Cost({"epoch": 12.34}, {}), metrics or None)


@pytest.fixture
def heard(caplog, monkeypatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("fullgnn"), "propagate", True)
    caplog.set_level(logging.INFO, "fullgnn")
    return caplog


@pytest.mark.parametrize(
    ("epochs", "shown"), [(3, [1, 2, 3]), (20, [1, *range(2, 21, 2)]), (205, [1, *range(20, 201, 20), 205])]
)
def test_lines_in_a_file(heard: pytest.LogCaptureFixture, epochs: int, shown: list[int]) -> None:
    progress = Progress(epochs, visible=True)
    for epoch in range(1, epochs + 1):
        progress.add_epoch(record(epoch, 1.0, None, 0.25) if epoch == 1 else record(epoch))
    progress.close()
    # an epoch that was not evaluated keeps showing the last accuracies
    rest = "loss 0.5000  train 100.00 %  val -  test 25.00 %  12.3 ms/epoch"
    assert heard.messages == [f"epoch {epoch}/{epochs}  {rest}" for epoch in shown]


def test_metrics_of_other_tasks_are_named(heard: pytest.LogCaptureFixture) -> None:
    Progress(1, visible=True).add_epoch(record(1, 0.75, 0.5, None, metric="micro_f1"))
    assert heard.messages == ["epoch 1/1  loss 0.5000  micro_f1: train 0.7500  val 0.5000  test -  12.3 ms/epoch"]


def test_items_that_take_long_are_counted(heard: pytest.LogCaptureFixture, monkeypatch) -> None:
    times = iter([0.0, 0.0, 3.0, 7.0, 8.0, 20.0])
    monkeypatch.setattr(log_module.time, "monotonic", lambda: next(times))
    assert [*counted([1, 2, 3, 4, 5], "options")] == [1, 2, 3, 4, 5]
    assert heard.messages == ["2 of 5 options after 7 s", "4 of 5 options after 20 s"]


def test_a_dry_run_shows_its_rank_and_no_loss(heard: pytest.LogCaptureFixture) -> None:
    progress = Progress(1, visible=True, simulated="rank 3 of 8, simulated")
    progress.add_epoch(record(1, 1.0, 0.5, 0.25))
    assert heard.messages == ["rank 3 of 8, simulated: epoch 1/1  12.3 ms/epoch"]


def test_one_line_on_a_terminal(heard: pytest.LogCaptureFixture, monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress(2, visible=True)
    progress.add_epoch(record(1, 0.5, 0.5, 0.5))
    progress.add_epoch(record(2))
    progress.close()
    assert heard.messages == []
    assert "\r" in terminal.getvalue() and "2/2" in terminal.getvalue()
    assert "loss 0.5000  val 50.00 %  12.3 ms/epoch]" in terminal.getvalue() and "test" not in terminal.getvalue()
    dry = Progress(1, visible=True, simulated="rank 3 of 8, simulated")
    dry.add_epoch(record(1, 0.5, 0.5, 0.5))
    dry.close()
    lines = terminal.getvalue().split("\r")
    assert lines[-1].startswith("rank 3 of 8, simulated: 100%") and "12.3 ms/epoch" in lines[-1]
    assert not any("loss" in line for line in lines if "simulated" in line)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (140, "loss 0.5000  train 50.00 %  val 25.00 %  test -  12.3 ms/epoch"),
        (100, "loss 0.5000  val 25.00 %  12.3 ms/epoch"),
        (80, "loss 0.5000  val 25.00 %"),
        (60, "loss 0.5000"),
    ],
)
def test_the_bar_says_what_there_is_room_for(monkeypatch, width: int, shown: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(log_module, "screen_width", lambda: width)
    progress = Progress(1000, visible=True)
    for epoch in range(1, 1001):
        progress.add_epoch(record(epoch, 0.5, 0.25, None))
    progress.close()
    lines = terminal.getvalue().strip().split("\r")
    assert lines[-1].endswith(f", {shown}]") and max(map(len, lines)) <= width


def test_another_metric_is_named_in_the_bar(monkeypatch) -> None:
    progress = Progress(5, visible=True)
    epoch = record(1, 0.75, 0.5, None, metric="micro_f1")
    progress.metrics = epoch.metrics or {}
    assert progress.lines_of(epoch)[2] == "loss 0.5000  val micro_f1 0.5000"
    progress.metrics = {}
    assert progress.lines_of(record(1))[2] == "loss 0.5000"


def test_a_line_of_the_log_stands_above_the_bar(monkeypatch) -> None:
    """It does not go on in the line of the bar."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    package = logging.getLogger("fullgnn")
    before = package.handlers, package.level, package.propagate
    progress = Progress(2, visible=True)
    try:
        setup_logging()
        progress.add_epoch(record(1, 0.5, 0.5, 0.5))
        package.info("a remark")
    finally:
        package.handlers, package.level, package.propagate = before
        progress.close()
    (line,) = [line for line in terminal.getvalue().split("\n") if "a remark" in line]
    assert line.split("\r")[-1] == "a remark"


def test_other_ranks_are_silent(heard: pytest.LogCaptureFixture, capsys) -> None:
    progress = Progress(2, visible=False)
    progress.add_epoch(record(1))
    progress.close()
    assert heard.messages == [] and capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("millions", "works", "lines"),
    [
        (9, ["fast"], []),
        (12, ["fast"], ["it begins: about 6 s"]),
        (9, ["fast", "slow", "unknown"], ["it begins: about 30 s"]),
        (1000, ["fast"], ["it begins: about 8 min"]),
        (1000, ["unknown"], []),
    ],
)
def test_what_takes_long_is_announced(heard, monkeypatch, millions: int, works: list[str], lines: list[str]) -> None:
    monkeypatch.setattr(log_module, "SECONDS_PER_MILLION", {"fast": 0.5, "slow": 3.0})
    announce("it begins", millions * 1_000_000, works)
    assert heard.messages == lines


@pytest.mark.parametrize("rank", [0, 2])
def test_other_ranks_only_warn_and_say_who_they_are(capsys, rank: int) -> None:
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
