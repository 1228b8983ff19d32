"""What is bold is the best beyond the noise: ranges that overlap have no best."""

from pathlib import Path
from typing import Any

import pytest

from fullgnn.report.replicates import Mean, Noise, Quantity
from fullgnn.report.summary import best
from tests.report.folders import page_of, record, write_run


def timed(median: float, p20: float, p80: float) -> dict[str, Any]:
    return {"epoch_time_ms": {"median": median, "p20": p20, "p80": p80}}


CLOSE = [timed(10.0, 9.0, 12.0), timed(13.0, 11.5, 15.0)]
APART = [timed(10.0, 9.0, 11.0), timed(13.0, 11.5, 15.0)]


@pytest.mark.parametrize(
    ("values", "noise", "choose", "records", "place"),
    [
        ([10.0, 13.0], "clock", min, CLOSE, None),
        ([10.0, 13.0], "clock", min, APART, 0),
        ([5.0, 5.5], "clock", min, APART, None),  # 4.5 to 5.5, and 4.9 to 6.3
        ([5.0, 9.0], "clock", min, APART, 0),
        ([0.0, 9.0], "clock", min, CLOSE, 0),
        ([0.90, 0.905], "sample", max, CLOSE, None),
        ([0.90, 0.92], "sample", max, CLOSE, 1),
        ([Mean([0.8, 0.9]), Mean([0.85, 0.95])], "sample", max, CLOSE, None),
        ([Mean([0.80, 0.81]), Mean([0.85, 0.86])], "sample", max, CLOSE, 1),
        ([Mean([0.80, 0.81]), 0.9, None], "sample", max, [*CLOSE, {}], 1),
        ([1.001, 1.002], "count", min, CLOSE, 0),
        ([1.0001, 1.0002], "count", min, CLOSE, None),  # the page shows the same three digits
        ([1.0, 1.0], "count", min, CLOSE, None),
        ([1.0], "count", min, CLOSE, None),
        ([None, 1.0], "count", min, CLOSE, None),
    ],
)
def test_best(values: list[Any], noise: Noise, choose, records: list[dict[str, Any]], place: int | None) -> None:
    texts = [f"{value:.3f}" if isinstance(value, float) else "–" for value in values]
    told = [of_run | {"value": value} for of_run, value in zip(records, values)]
    quantity = Quantity("a value", "value", best=choose, noise=noise)
    assert best(quantity, texts, told, [(str(k), "") for k in range(len(values))]) == place


def test_epoch_times_that_overlap_are_not_bold(undrawn, tmp_path: Path) -> None:
    for k, changes in enumerate(CLOSE + APART):
        write_run(tmp_path / str(k), record(**changes))
    close = page_of(tmp_path / "0", tmp_path / "1", out=tmp_path / "page")
    assert close.bold == [] and "Bold: the best of a row" in close.sections["Summary"].text
    assert page_of(tmp_path / "2", tmp_path / "3", out=tmp_path / "page").bold == ["10.000 ms"]
