"""Progress of rank 0: one line that is rewritten on a terminal, about ten log lines in a file."""

import io
import logging
import sys

import pytest

from fullgnn.telemetry.epoch import Accuracies, EpochRecord
from fullgnn.telemetry.meter import Cost
from fullgnn.telemetry.progress import Progress


def record(epoch: int, accuracy: Accuracies | None = None) -> EpochRecord:
    return EpochRecord(epoch, 0.5, Cost({"epoch": 12.34}, {}), accuracy)


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
        progress(record(epoch, Accuracies(1.0, None, 0.25) if epoch == 1 else None))
    progress.close()
    # an epoch that was not evaluated keeps showing the last accuracies
    rest = "loss 0.5000  train 100.00 %  val -  test 25.00 %  12.3 ms/epoch"
    assert heard.messages == [f"epoch {epoch}/{epochs}  {rest}" for epoch in shown]


def test_one_line_on_a_terminal(heard: pytest.LogCaptureFixture, monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress(2, visible=True)
    progress(record(1, Accuracies(0.5, 0.5, 0.5)))
    progress(record(2))
    progress.close()
    assert heard.messages == []
    assert "\r" in terminal.getvalue() and "2/2" in terminal.getvalue()
    assert "test 50.00 %  12.3 ms/epoch" in terminal.getvalue()


def test_other_ranks_are_silent(heard: pytest.LogCaptureFixture, capsys) -> None:
    progress = Progress(2, visible=False)
    progress(record(1))
    progress.close()
    assert heard.messages == [] and capsys.readouterr() == ("", "")
