"""Table 5 and figure 10, which train, on tiny graphs, and the epochs that these targets time."""

from pathlib import Path

import numpy as np
import pytest

from fullgnn.bench.papers.config import JobShape, load_target, run
from fullgnn.bench.papers.graphs import case
from fullgnn.bench.papers.hetu import epochs
from fullgnn.bench.papers.result import Result
from fullgnn.bench.papers.trainings import COMPUTATION, ONE_RANK, num_epochs, prepare_job, time_job
from fullgnn.prepare.statistics import whole_matrix

pytest.importorskip("pymetis")

TINY = ["device=cpu", "nproc=1", "threads=1", "data_root=null", "scale=0.01", "epochs=2"]


@pytest.fixture(scope="module")
def thresholds() -> Result:
    return run("table5", load_target("table5", *TINY, "datasets=[reddit-like,proteins-like]"))


@pytest.fixture(scope="module")
def on_and_off() -> Result:
    return run("fig10", load_target("fig10", *TINY, "datasets=[reddit-like]", "links=titanrtx8"))


def test_epochs_are_those_asked_for_or_the_papers_at_full_size(tmp_path: Path) -> None:
    few = load_target("table5", "scale=0.01", "data_root=null")
    made = case(few, "reddit-like")
    assert num_epochs(few, made) == few.few_epochs
    assert num_epochs(load_target("table5", "epochs=7"), made) == 7
    made.graph.save(tmp_path / "reddit.npz")
    real = load_target("table5", f"data_root={tmp_path}")
    assert num_epochs(real, case(real, "reddit-like")) == 100


@pytest.mark.sample(0)
def test_table5_counts_the_non_zeros_in_dense_tiles(thresholds: Result) -> None:
    made = thresholds.cases[0]
    cfg = load_target("table5", *TINY)
    prepared = prepare_job(cfg, made, ONE_RANK, cfg.choices)
    dense = whole_matrix(prepared, self_loops=True).toarray()
    padded = np.zeros([-(-size // 32) * 32 for size in dense.shape], np.int64)
    padded[: len(dense), : len(dense)] = dense
    in_tile = padded.reshape(len(padded) // 32, 32, -1, 32).sum(axis=(1, 3))
    shares = [100 * in_tile[in_tile > limit * 1024].sum() / dense.sum() for limit in cfg.thresholds]
    (row,) = (row for row in thresholds.rows if row.labels == (made.title, epochs.DENSE))
    assert [cell.ours for cell in row.cells.values()] == pytest.approx(shares)
    assert 0 < shares[2] < shares[0] < 100


@pytest.mark.sample(0)
def test_table5_has_the_papers_seconds_beside_ours(thresholds: Result) -> None:
    (epoch,) = (row for row in thresholds.rows if row.labels == ("Proteins", epochs.SECONDS))
    assert [cell.paper for cell in epoch.cells.values()] == [0.100, 0.060, 0.057]
    assert [cell.paper_ratio for cell in epoch.cells.values()] == pytest.approx([1, 100 / 60, 100 / 57])
    times = [job["epoch_ms"][0] for job in thresholds.details["proteins-like"]]
    assert [cell.ours for cell in epoch.cells.values()] == pytest.approx([ms / 1e3 for ms in times])
    assert all(cell.origin == "measured" for row in thresholds.rows for cell in row.cells.values())


@pytest.mark.sample(0)
def test_fig10_measures_what_it_can_and_says_what_it_simulates(on_and_off: Result) -> None:
    assert [row.labels[1] for row in on_and_off.rows[::3]] == ["single", "1D p=2", "1.5D p=4 r=2"]
    for spmm, computation, epoch in zip(*(on_and_off.rows[k::3] for k in range(3))):
        single = epoch.labels[1] == "single"
        for key in (epochs.OFF, epochs.ON):
            assert spmm.cells[key].origin == computation.cells[key].origin == "measured"
            assert epoch.cells[key].origin == ("measured" if single else "simulated")
            assert 0 < spmm.cells[key].ours < computation.cells[key].ours  # type: ignore[operator]
            waits = epoch.cells[key].ours > computation.cells[key].ours  # type: ignore[operator]
            assert waits != single
    assert any("titanrtx8" in note for note in on_and_off.notes)


@pytest.mark.sample(0)
def test_a_layout_that_fits_runs_on_all_of_its_ranks() -> None:
    cfg = load_target("fig10", "device=cpu", "nproc=2", "threads=1", "data_root=null", "scale=0.01", "epochs=3")
    layout = JobShape("1d", 2, 1)
    made = case(cfg, "reddit-like")
    own = [*cfg.choices, *cfg.plain]
    times = time_job(cfg, made, layout, own, prepare_job(cfg, made, layout, own))
    assert times.origin == "measured"
    assert 0 < times.spmm_ms[0] < times.cell(COMPUTATION).ours < times.epoch_ms[0]  # type: ignore[operator]
