"""Long phases of a set-up are announced, with about how long they take."""

import logging

import pytest

from fullgnn.telemetry import phases
from fullgnn.telemetry.phases import announce


@pytest.fixture
def heard(caplog, monkeypatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("fullgnn"), "propagate", True)
    caplog.set_level(logging.INFO, "fullgnn")
    monkeypatch.setattr(phases, "SECONDS_PER_MILLION", {"fast": 0.5, "slow": 3.0})
    return caplog


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
def test_what_takes_long_is_announced(heard, millions: int, works: list[str], lines: list[str]) -> None:
    announce("it begins", millions * 1_000_000, works)
    assert heard.messages == lines
