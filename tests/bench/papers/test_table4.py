"""Table 4: all methods start from the same weights, missing peers are named, and the paper's seconds are shown."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from fullgnn.bench.papers import trainings
from fullgnn.bench.papers.batches import why_missing
from fullgnn.bench.papers.config import load_target, published, run
from fullgnn.bench.papers.page import _bars
from fullgnn.bench.papers.result import Bars, Result
from fullgnn.errors import ConfigError

pytestmark = pytest.mark.sample(3, "table4")  # each target takes seconds, and all work alike
TINY = ("datasets=[reddit-like]", "scale=0.008", "links=h200x8", "device=cpu", "epochs=2", "warmup=0")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run("table4", load_target("table4", *TINY, f"data_root={tmp_path_factory.mktemp('data')}"))


def test_methods_that_take_turns_have_the_same_losses(result: Result) -> None:
    errors = result.details["Reddit"]["loss_error"]
    assert set(errors) == set(result.columns) - set(result.details["Reddit"]["missing"])
    assert max(errors.values()) < 1e-5
    assert len(errors) >= 6


def test_every_cell_of_one_process_is_measured_over_the_base(result: Result) -> None:
    here = result.rows[0]
    assert here.labels == ("Reddit", "1D p=1")
    base = here.cells["ours base"].ours
    assert isinstance(base, float)
    for title in set(result.columns) - {"DGL"}:
        cell = here.cells[title]
        assert isinstance(cell.ours, float)
        assert (cell.origin, cell.unit, cell.ratio) == ("measured", "s", base / cell.ours)


@pytest.mark.skipif(find_spec("dgl") is not None, reason="DGL is installed")
def test_a_library_that_is_missing_is_named(result: Result) -> None:
    cell = result.rows[0].cells["DGL"]
    assert (cell.ours, cell.paper, cell.ratio) == ("not installed", 0.587, None)


def test_the_papers_seconds_and_ratios_stand_beside_one_process(result: Result) -> None:
    here, ranks = result.rows
    papers = [cell.paper for cell in here.cells.values()]
    assert papers == [1.187, None, 0.587, 0.710, 0.302, 0.102, None]
    assert here.cells["+ reorder"].paper_ratio == 0.710 / 0.302
    assert all(cell.paper is None for cell in ranks.cells.values())


def test_several_ranks_are_simulated_and_have_no_peers(result: Result) -> None:
    ranks = result.rows[1]
    assert ranks.labels == ("Reddit", "1.5D p=4 r=2")
    assert set(ranks.cells) == {title for title in result.columns if "ours" in title or "+" in title}
    assert {cell.origin for cell in ranks.cells.values()} == {"simulated"}


def test_the_figure_names_only_columns_with_bars(result: Result) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    here, ranks = result.panels
    for panel, wanted in ((here, "DGL, paper"), (ranks, "+ reorder")):
        axes = figure.Figure().subplots()
        assert isinstance(panel, Bars)
        _bars(axes, panel)
        names = axes.get_legend_handles_labels()[1]
        assert wanted in names
        assert len(axes.containers) == len(names) and all(map(len, axes.containers))
    assert names == ["+ reorder", "+ reorder + block-sparse", "+ reorder + everything"]


def test_out_of_memory_is_a_word_of_the_paper() -> None:
    paper = load_target("table4").paper
    assert all(published(paper, library, graph="archaea-like") == "OOM" for library in ("PyTorch", "DGL"))


def test_another_failure_of_a_peer_keeps_its_words() -> None:
    assert why_missing("ModuleNotFoundError: No module named 'dgl'") == "not installed"
    assert why_missing("RuntimeError: no") == "RuntimeError: no"


def test_an_unknown_peer_is_refused(tmp_path: Path) -> None:
    cfg = load_target("table4", *TINY, "layouts=[{scheme:1d,p:1,r:1}]", f"data_root={tmp_path}")
    cfg.methods[0].peer = "torch"
    with pytest.raises(ConfigError, match="^peer=torch is not known: choose one of torch CSR "):
        run("table4", cfg)


def test_without_ranks_no_profile_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr(trainings, "load_hardware", refuse)
    keys = ("layouts=[{scheme:1d,p:1,r:1}]", "methods=[{title:ours base,overrides:['experiment=hetu']}]")
    cfg = load_target("table4", *TINY, *keys, f"data_root={tmp_path}")
    assert [row.labels[1] for row in run("table4", cfg).rows] == ["1D p=1"]
