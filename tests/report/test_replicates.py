"""Several seeds in one record: means where numbers differ, and how they are written."""

import math

import pytest

from fullgnn.report.replicates import Mean, merged, shown, std
from fullgnn.telemetry.screen import num_bytes, percent


def test_a_mean_is_a_number_that_knows_its_spread() -> None:
    mean = Mean([1.0, 2.0, 6.0])
    assert mean == 3 and mean + 1 == 4
    assert std(mean) == pytest.approx(math.sqrt((4 + 1 + 9) / 2)) and (mean.low, mean.high, std(2)) == (1, 6, 0)


def test_records_are_merged_leaf_by_leaf() -> None:
    first = {"same": 3, "time": {"p20": 1.0, "p80": 4}, "ranks": [{"nnz": 1}, {"nnz": 2}], "kernel": "csr", "cut": True}
    second = {"same": 3, "time": {"p20": 2.0, "p80": 4}, "ranks": [{"nnz": 3}, {"nnz": 2}], "kernel": "torch", "new": 1}
    means = merged([first, second])
    assert means == {
        "same": 3,
        "time": {"p20": 1.5, "p80": 4},
        "ranks": [{"nnz": 2}, {"nnz": 2}],
        "kernel": "csr, torch",
        "cut": True,
        "new": 1,
    }
    assert isinstance(means["time"]["p20"], Mean) and not isinstance(means["time"]["p80"], Mean)
    assert merged([[1], [1, 2]]) == [1]


@pytest.mark.parametrize("values", [[1.0, None], [1.0, math.inf], [None, None]])
def test_a_mean_does_not_hide_a_missing_number(values: list[float | None]) -> None:
    assert merged(values) is None


@pytest.mark.parametrize(
    ("number", "show", "text"),
    [
        (Mean([0.8, 0.9]), percent, "85.00 ± 7.07 %"),
        (Mean([1.0, 3.0]), "{:.3f} ms".format, "2.000 ± 1.414 ms"),
        (Mean([1, 3]), "{:,.0f}".format, "2 ± 1"),
        (Mean([4e6, 4.001e6]), num_bytes, "4.00 MB ± 707 B"),
        (2.0, "{:.1f}".format, "2.0"),
        (None, percent, "–"),
        (math.nan, percent, "–"),
    ],
)
def test_the_unit_stands_once(number: float | None, show, text: str) -> None:
    assert shown(number, show) == text
