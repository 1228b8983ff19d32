"""Cells, their ratios, and the table and CSV that they become."""

import csv
import io

import pytest

from fullgnn.bench.papers.page import csv_text, table_text
from fullgnn.bench.papers.result import Bars, Cell, Result, TableRow, bars, speedups


def test_a_speedup_is_the_base_over_the_cell_for_both_columns() -> None:
    cells = speedups({"a": Cell(6.0, 3.0), "b": Cell(2.0, 1.0), "c": Cell("not installed", 2.0)}, "a")
    assert [cell.ratio for cell in cells.values()] == [1.0, 3.0, None]
    assert [cell.paper_ratio for cell in cells.values()] == [1.0, 3.0, 1.5]


def test_measured_and_simulated_times_are_never_divided() -> None:
    cells = speedups({"a": Cell(6.0), "b": Cell(2.0, origin="simulated")}, "a")
    assert cells["b"].ratio is None


def test_a_published_ratio_needs_no_published_times() -> None:
    cells = speedups({"a": Cell(6.0), "b": Cell(2.0, paper_ratio=1.5)}, "a")
    assert cells["b"].paper_ratio == 1.5


@pytest.fixture
def result() -> Result:
    sped_up = speedups({"base": Cell(8.0, 0.4, "ms"), "new": Cell(2.0, 0.1, "ms", "simulated")}, "base")
    plain = {"base": Cell(1.5, None, "ms"), "new": Cell("not installed")}
    return Result(("graph",), ("base", "new"), [TableRow(("G",), sped_up), TableRow(("K|L",), plain)], [])


def test_the_table_says_where_each_number_is_from(result: Result) -> None:
    head, _, first, second = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in table_text(result).splitlines()
    )
    assert head == ["graph", "base, ms, measured", "base, paper", "new, ms, simulated", "new, paper"]
    assert first == ["G", "8 (1.00 x)", "0.4 (1.00 x)", "2", "0.1 (4.00 x)"]
    assert second == ["K / L", "1.5", "-", "not installed", "-"]


def test_rows_of_one_origin_each_share_a_column_for_it() -> None:
    rows = [TableRow(("here",), {"n": Cell(1)}), TableRow(("there",), {"n": Cell(2, origin="derived")})]
    rows.append(TableRow(("nowhere",), {"n": Cell("not measured")}))
    lines = table_text(Result(("graph",), ("n",), rows, [])).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if ":-" not in line] == [
        ["graph", "ours is", "n"],
        ["here", "measured", "1"],
        ["there", "derived", "2"],
        ["nowhere", "-", "not measured"],
    ]


def test_the_csv_has_a_line_for_each_cell(result: Result) -> None:
    lines = list(csv.DictReader(io.StringIO(csv_text(result))))
    assert len(lines) == 4
    head = ["graph", "column", "ours", "unit", "origin", "ratio", "paper", "paper_ratio"]
    assert lines[1] == dict(zip(head, ["G", "new", "2.0", "ms", "simulated", "", "0.1", "4.0"], strict=True))


def test_bars_of_ratios_have_the_papers_beside_ours(result: Result) -> None:
    (panel,) = bars("speed-ups", "speed-up", result.rows, ["new"])
    assert isinstance(panel, Bars)
    assert panel.groups == ["G", "K|L"]
    assert panel.series[0].values == [None, None]
    assert panel.series[0].paper == [4.0, None]


def test_rows_with_the_same_title_share_a_panel() -> None:
    rows = [TableRow((graph, of), {"n": Cell(1.0)}) for graph in ("G", "K") for of in ("epoch", "SpMM")]
    panels = bars("{1} by graph", "n", rows, ["n"], ("ours",))
    assert [(panel.title, panel.groups) for panel in panels] == [
        (f"{of} by graph", ["G", "K"]) for of in ("epoch", "SpMM")
    ]
    assert all(panel.series[0].values == [1.0, 1.0] and panel.series[0].paper == [] for panel in panels)
