"""Which runs a folder stands for: a folder of runs, sweeps and other things is searched, and the rest is named."""

import logging
from pathlib import Path

import pytest

from fullgnn.errors import ConfigError
from fullgnn.report.content import COUNTED_BY
from fullgnn.report.runs import read_runs
from tests.commands import run_command
from tests.report.folders import COMMAND, page_of, record, sweep, write_run

pytest.importorskip("matplotlib")


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder as it looks after some weeks: runs, sweeps, a plan, a benchmark, notes, an earlier report."""
    write_run(tmp_path / "alone", record())
    write_run(tmp_path / "month" / "paper" / "p1", record())
    sweep(tmp_path / "orders", ["ok", "failed", "ok"])
    sweep(tmp_path / "broken", ["failed"])
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "plan.json").write_text("{}")
    write_run(tmp_path / "bench", {"op": "spmm"})
    write_run(tmp_path / "damaged", record())
    (tmp_path / "damaged" / "record.json").write_text("{")
    write_run(tmp_path / "month" / "a" / "b" / "too_deep", record())
    (tmp_path / "report_figures").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "notes.txt").touch()
    return tmp_path


def test_a_folder_stands_for_the_runs_and_sweeps_below_it(workplace: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fullgnn"):
        runs, search = read_runs([workplace])
    assert [run.name for run in runs] == ["alone", "month/paper/p1", "orders: seed=0", "orders: seed=2"]
    assert [(failure.sweep.name, failure.job) for failure in search.failures] == [("broken", "0"), ("orders", "1")]
    skipped, left_out = caplog.messages
    bench, damaged = workplace / "bench" / "record.json", workplace / "damaged" / "record.json"
    assert skipped == f"skipped, since they are no runs: plan, {bench} is not of a training run"
    assert left_out.startswith(f"left out, since it is damaged: {damaged} cannot be read: leave ")


@pytest.mark.sample(2)
def test_the_page_is_in_the_folder_and_the_command_says_what_it_skips(workplace: Path) -> None:
    done = run_command(COMMAND, ".", cwd=workplace)
    assert done.status == 0, done.output
    skipped, left_out, page = done.output.splitlines()
    assert skipped.startswith("skipped, since they are no runs: plan, ") and page == str(workplace / "report.html")
    assert f"left out, since it is damaged: {workplace / 'damaged' / 'record.json'} cannot be read" in left_out


def test_nothing_is_logged_where_all_are_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "10", "9"):
        write_run(tmp_path / name, record())
    with caplog.at_level(logging.INFO, "fullgnn"):
        runs, _ = read_runs([tmp_path])
    assert [run.name for run in runs] == ["9", "10", "a"] and not caplog.records


def test_a_run_that_is_named_twice_is_there_once(workplace: Path) -> None:
    runs, _ = read_runs([workplace / "alone", workplace])
    assert [run.name for run in runs][:2] == ["alone", "month/paper/p1"] and len(runs) == 4


def test_a_damaged_run_that_is_named_is_left_out_beside_others_and_an_error_alone(workplace: Path) -> None:
    runs, search = read_runs([workplace / "damaged", workplace / "alone"])
    assert [run.name for run in runs] == ["alone"]
    (sentence,) = search.left_out
    assert sentence.startswith(f"Damaged, and left out: {workplace / 'damaged' / 'record.json'} cannot be read")
    with pytest.raises(ConfigError, match="record.json cannot be read: leave this run out, or train it again"):
        read_runs([workplace / "damaged"])


def test_jobs_that_failed_show_their_errors(undrawn, tmp_path: Path) -> None:
    folder = sweep(tmp_path / "sweep", ["ok", "failed", "failed", "ok", "failed", "stopped"])
    table = folder / "sweep.csv"
    table.write_text(table.read_text().replace("seed=4 optimizer.lr=1,out", "seed=4 optimizer.lr=1,<b>"))
    page = page_of(folder)
    text = page.sections["Failed jobs"].text
    assert f"{folder}: job 1 (seed=1) and job 2 (seed=2) failed.\nout of memory" in text
    assert f"{folder}: job 4 (seed=4) failed.\n<b> of memory" in text and page.bold == []
    assert f"Job 5 of {folder} has not finished and is left out." in page.sections[""].text
    assert "Failed jobs" not in page_of(folder / "0").sections


def test_a_sweep_without_reasons_is_shown(undrawn, tmp_path: Path) -> None:
    """A table of an earlier version, or one that was cut by hand."""
    folder = sweep(tmp_path / "sweep", ["ok", "failed"])
    (folder / "sweep.csv").write_text("job,status,overrides\n0,ok,seed=0\n1,failed,seed=1\n")
    assert "sweep.csv does not say why" in page_of(folder).sections["Failed jobs"].text


def test_what_was_not_counted_is_said_and_how_to_count_it(undrawn, tmp_path: Path) -> None:
    nothing = {"edge_cut": None, "needed_row_ratio": None, "tile_density": None}
    bare = write_run(tmp_path / "bare", record(**nothing))
    page = page_of(bare)
    cure = "(train.statistics=true counts them)."
    assert f"Not counted: edge cut and needed rows {cure}" in page.sections["Summary"].text
    cure = f"({COUNTED_BY})."
    assert f"Not counted: structure.npz {cure}" in page.sections["Adjacency"].text
    assert f"Not counted: tile densities {cure}" in page.sections["Tile density"].text
    assert "Not recorded" not in "".join(section.text for section in page.sections.values())
    both = page_of(bare, write_run(tmp_path / "counted", record(edge_cut=0.5)), out=tmp_path / "page")
    assert f"Not counted: tile densities of bare {cure}" in both.sections["Tile density"].text
    assert "Not recorded: structure.npz of counted." in both.sections["Adjacency"].text
    running = write_run(tmp_path / "running", None, "train: {statistics: false}\n")
    assert f"Not counted: structure.npz {cure}" in page_of(running).sections["Adjacency"].text
    for k in range(2):
        told = record(**nothing, final_loss=float(k))
        write_run(tmp_path / "seeds" / str(k), told, f"seed: {k}\nmodel: {{name: gcn}}\n")
    assert f"Not counted: tile densities {cure}" in page_of(tmp_path / "seeds").sections["Tile density"].text
