"""The targets of Li et al. (2025) on tiny graphs, and the pipeline's model."""

import numpy as np
import pytest

from fullgnn.bench.papers.config import load_target, published, run
from fullgnn.bench.papers.fused import compared, makespan
from fullgnn.bench.papers.result import Result, number, with_label

pytestmark = pytest.mark.sample(3)  # each target takes seconds, and all work alike
TINY = [
    "device=cpu", "nproc=1", "threads=1", "data_root=null", "scale=0.01", "datasets=[yelp-like]", "fanouts=[3,2]",
    "batch_size=32", "batches=2", "rounds=4", "peers=[dgl]",
]  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3, 10, 33])
def test_the_pipelines_are_those_of_the_paper(n: int) -> None:
    cfg = load_target("fused_fig5")
    serial, overlapped = (makespan(stations, n) for stations in cfg.stations.values())
    assert (serial, overlapped) == (3 * n + 1, 2 * n + 4)


def test_the_slowest_station_decides() -> None:
    assert makespan([1, 5], 10) == 1 + 5 * 10
    assert makespan([5, 1], 10) == 5 * 10 + 1
    assert makespan([2, 3, 1], 4) == 2 + 3 * 4 + 1
    assert makespan([4], 3) == 12


def fused(target: str, *own: str) -> Result:
    return run(target, load_target(target, *TINY, *own))


def test_fig6_and_breakdown_compare_operators() -> None:
    result = fused("fused_fig6")
    (row,) = result.rows
    fast, fused_cell = row.cells["toBlockFast"], row.cells["fused"]
    assert (fast.paper_ratio, fused_cell.paper_ratio) == (1.31, 1.52)
    base = "DGL" if number(row.cells["DGL"].ours) is not None else "separate operators"
    assert fused_cell.ratio == pytest.approx(row.cells[base].ours / fused_cell.ours)  # type: ignore[operator]
    shares = fused("fused_breakdown").rows
    assert [row.cells["DGL"].paper for row in shares] == [76, 80, "58 to 76"]
    for row in shares[:2]:
        assert 0 < row.cells["separate operators"].ours < 100  # type: ignore[operator]
    assert shares[2].cells["ours"].ours == "not measured: no GPU"


@pytest.mark.sample(6)
def test_epochs_are_measured_up_to_nproc_and_simulated_beyond() -> None:
    figure = fused("fused_fig7", "processes=[1,4]", "links=titanrtx8")
    alone, four, *largest = figure.rows
    assert alone.cells["ours"].origin == "measured" and four.cells["ours"].origin == "simulated"
    assert 0 < four.cells["ours"].ours < alone.cells["ours"].ours  # type: ignore[operator]
    assert [(row.labels[1], row.cells["ours"].paper) for row in largest] == [("largest speed-up", 1.06)] * 2
    table = fused("fused_table2", "processes=[1,4]", "links=titanrtx8")
    assert [row.cells["over DGL"].origin for row in table.rows] == ["measured", "simulated"]
    assert [[cell.paper for cell in row.cells.values()] for row in table.rows] == [
        [1.06, 0.97, 1.01],
        [1.05, 1.09, 1.03],
    ]
    for row, times in zip(table.rows, table.details.values(), strict=True):
        assert row.cells["over Graph-Learn"].ours == "the paper's only"
        if number(times["DGL"]) is not None:
            assert row.cells["over DGL"].ours == pytest.approx(times["DGL"] / times["ours"])
        else:
            assert row.cells["over DGL"].ours == "not installed"


def test_the_batch_of_table3_shrinks_with_the_graph() -> None:
    result = fused("fused_table3", "batch_sizes=[3200]")
    (row,) = result.rows
    assert row.labels[1] == "3,200 x 0.01 = 32" and number(row.cells["ours"].ours) is not None
    paper = load_target("fused_table3").paper
    dgl, ours = (published(paper, library, batch_size=1000) for library in ("DGL", "ours"))
    assert dgl / ours == pytest.approx(7.16, abs=0.01)


def test_fig5_measures_a_batch_with_and_without_a_worker() -> None:
    *model, measured, simulated = fused("fused_fig5", "counts=[1,4]").rows
    assert [[cell.ours for cell in row.cells.values()] for row in model] == [[4, 6], [13, 12]]
    assert {cell.origin for row in (*model, simulated) for cell in row.cells.values()} == {"simulated"}
    assert {cell.origin for cell in measured.cells.values()} == {"measured"}
    serial, overlapped = (number(cell.ours) or 0 for cell in simulated.cells.values())
    assert 0.5 * serial <= overlapped <= serial


def test_table4_says_how_far_accuracies_are_apart() -> None:
    digits = ["dataset=['dataset=karate']", "hidden=8", "batch_size=4", "epochs=2", "full_epochs=2", "dropout=0"]
    keys = ["device=cpu", "chosen_runs=[PubMed]", "seeds=[0]", "processes=[1,2]", "fanouts=[3,2]"]
    result = run("fused_table4", load_target("fused_table4", *keys, *(f"runs.PubMed.{key}" for key in digits)))
    accuracies = result.details["PubMed"]
    first, second = (row.cells for row in with_label(result.rows, "PubMed"))
    assert first["ours"].ours == pytest.approx(np.mean(accuracies["ours p=1"]))
    assert accuracies["ours p=1"] == pytest.approx(accuracies["ours p=2"], abs=1e-4)  # the same batches
    assert second["full batch"].ours == "as above" and first["full batch"].ours == pytest.approx(
        np.mean(accuracies["full batch"])
    )
    assert any("points apart" in note for note in result.notes)


def test_accuracies_are_compared_with_the_spread_of_the_seeds() -> None:
    note = compared("PubMed", "DGL", [79.0, 80.0, 81.0], [78.0, 79.0, 80.0])
    assert note == "PubMed: ours and DGL are 1.00 points apart, within the 2.00 points of the seeds."
    assert "2.00 points apart, NOT within the 0.50" in compared("PubMed", "DGL", [80, 80.5], [78, 78.5])
