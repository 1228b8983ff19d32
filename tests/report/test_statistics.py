"""A report counts, once, the statistics of runs that have not counted them, from the prepared graphs that they left."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.distributed import World, dry_world, world_of_one
from fullgnn.partition.facts import edge_cut
from fullgnn.partition.folder import open_folder
from fullgnn.prepare import statistics
from fullgnn.prepare.source import Preparation
from fullgnn.report.content import COUNTED_BY
from fullgnn.report.runs import read_runs
from fullgnn.storage.record import read_record
from fullgnn.train import run_on
from fullgnn.train_minibatch import run_on as run_sampled_on
from tests.cases import config, minibatch_config
from tests.report.folders import Page, page_of, record, write_run

pytest.importorskip("matplotlib")

COMMON = ["dataset=rmat", "dataset.num_nodes=200", "dataset.num_edges=3000", "train.epochs=2", "runtime.device=cpu"]
SECTIONS = {"Adjacency": "structure.npz", "Non-zeros per block": "structure.npz", "Tile density": "tile densities"}


def files_of(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}


def assert_counted_alike(folder: Path, train: Callable[[list[str]], object]) -> None:
    """Train with statistics, and without them but with a cache: the report of the second run has those of the first."""
    counting, cached = folder / "counting", folder / "cached"
    train([f"run_dir={counting}", "train.statistics=true"])
    train([f"run_dir={cached}", f"runtime.cache_dir={folder / 'cache'}"])
    before = files_of(cached)
    assert "structure.npz" not in before and read_record(cached).tile_density is None
    (run,), _ = read_runs([cached])
    assert run.record["tile_density"] == read_record(counting).tile_density and not run.uncounted
    with np.load(counting / "structure.npz") as arrays:
        assert sorted(arrays) == sorted(vars(run.structure))
        for name, array in vars(run.structure).items():
            assert array.dtype == arrays[name].dtype and np.array_equal(array, arrays[name]), name
    assert files_of(cached) == before


@pytest.mark.sample(2)
@pytest.mark.parametrize("self_loops", [True, False])
def test_a_report_counts_what_the_run_would_have_counted(tmp_path: Path, self_loops: bool) -> None:
    def train(overrides: list[str]) -> None:
        cfg = config(*COMMON, "reorder=rcm", f"self_loops={self_loops}", *overrides)
        with world_of_one(cfg.runtime) as world:
            run_on(world, cfg)

    assert_counted_alike(tmp_path, train)


def test_the_block_rows_of_a_dry_run_with_replicas_are_its_parts(tmp_path: Path) -> None:
    def train(overrides: list[str]) -> None:
        cfg = config(*COMMON, "scheme=1.5d", "scheme.replication=2", "partition=nnz", *overrides)
        with dry_world(cfg.runtime, 3, 4) as world:
            run_on(world, cfg)

    assert_counted_alike(tmp_path, train)
    with np.load(tmp_path / "counting" / "structure.npz") as arrays:
        assert arrays["block_nnz"].shape == (2, 2)


def trained(world: World, overrides: list[str]) -> None:
    run_on(world, config(*COMMON, "scheme=1d", "reorder=metis", "reorder.cluster_size=20", *overrides))


def test_several_ranks_leave_one_graph(ranks, tmp_path: Path) -> None:
    assert_counted_alike(tmp_path, lambda overrides: ranks(2)(trained, overrides))


@pytest.mark.sample(3)
def test_sampled_training_has_the_statistics_of_its_evaluation(tmp_path: Path) -> None:
    def train(overrides: list[str]) -> None:
        cfg = minibatch_config(*COMMON, "loader.batch_size=60", *overrides)
        with world_of_one(cfg.runtime) as world:
            run_sampled_on(world, cfg)

    assert_counted_alike(tmp_path, train)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path | None, bool]]:
    """The prepared graphs whose statistics have been counted."""
    calls: list[tuple[Path | None, bool]] = []
    count = statistics.count_statistics

    def counting(prepared: Any, self_loops: bool) -> Any:
        calls.append((prepared.folder, self_loops))
        return count(prepared, self_loops)

    monkeypatch.setattr(statistics, "count_statistics", counting)
    return calls


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """The folder of a prepared graph of two block rows."""
    cfg = config("dataset=karate", f"runtime.cache_dir={tmp_path / 'cache'}")
    return Preparation(cfg, 2).in_folder(tmp_path / "temporary")[0]


def run_of(graph: Path, path: Path, seed: int = 0, self_loops: bool = True, **changes: Any) -> Path:
    """The folder of a run of this graph, without statistics."""
    facts = open_folder(graph).facts
    told = {"nnz": facts.nnz(self_loops), "edge_cut": edge_cut(facts, self_loops), "tile_density": None}
    text = f"seed: {seed}\nself_loops: {str(self_loops).lower()}\ntrain: {{statistics: false}}\n"
    return write_run(path, record(prepared=str(graph), **told, **changes), text)


def lines_of(page: Page) -> list[str]:
    """What the page says of statistics that it lacks."""
    return [line.strip() for name in SECTIONS for line in page.sections[name].text.split("\n") if "Not " in line]


def test_runs_of_one_graph_are_counted_once(
    undrawn, tmp_path: Path, graph: Path, counted: list[tuple[Path | None, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    runs = [run_of(graph, tmp_path / name, reorder=name) for name in ("a", "b")]
    runs.append(run_of(graph, tmp_path / "c", self_loops=False))
    with caplog.at_level(logging.INFO, "fullgnn"):
        first = page_of(*runs, out=tmp_path / "page")
    assert counted == [(graph, True), (graph, False)]
    told = f"counting where the 156 non-zeros of karate are, once for all runs and reports: {graph}"
    assert caplog.messages == [told] * 2
    assert lines_of(first) == [] and all(first.sections[name].tables for name in SECTIONS)
    alts = {image["alt"] for image in first.sections["Non-zeros per block"].images}
    assert {"a and b: non-zeros of 2 by 2 blocks, 20 to 77.", "c: non-zeros of 2 by 2 blocks, 20 to 60."} < alts
    assert page_of(*runs, out=tmp_path / "page").sections == first.sections
    assert len(counted) == 2 and len(list((tmp_path / "cache" / "statistics").iterdir())) == 2


def test_seeds_have_the_mean_of_their_graphs(undrawn, tmp_path: Path, graph: Path) -> None:
    """Where an order depends on the seed, each seed has a graph of its own."""
    ordered = ["reorder=metis", "reorder.cluster_size=5", "seed=1", f"runtime.cache_dir={tmp_path / 'cache'}"]
    other, _ = Preparation(config("dataset=karate", *ordered), 2).in_folder(tmp_path / "temporary")
    runs = [run_of(path, tmp_path / f"s{seed}", seed) for seed, path in enumerate((graph, other))]
    (run,), _ = read_runs(runs)
    first, second = (read_runs([path])[0][0].record["tile_density"] for path in runs)
    assert {name: (first[name] + second[name]) / 2 for name in first} == run.record["tile_density"]
    shutil.rmtree(tmp_path / "cache")
    assert len(lines_of(page_of(*runs, out=tmp_path / "page"))) == 3


def test_what_is_kept_outlives_the_graph(undrawn, tmp_path: Path, graph: Path) -> None:
    run = run_of(graph, tmp_path / "run")
    first = page_of(run)
    shutil.rmtree(graph)
    assert page_of(run).sections == first.sections and lines_of(first) == []


def test_a_graph_that_is_gone_is_said_once_for_all_runs(undrawn, tmp_path: Path, graph: Path) -> None:
    runs = [run_of(graph, tmp_path / name, reorder=name) for name in ("a", "b")]
    shutil.rmtree(graph)
    page = page_of(*runs, write_run(tmp_path / "c", record()), out=tmp_path / "page")
    why = f"({graph.parent} does not have the prepared graph any more; {COUNTED_BY})."
    for name, what in SECTIONS.items():
        assert f"Not counted: {what} of a, b {why}" in page.sections[name].text
    assert "Not recorded: structure.npz of c." in page.sections["Adjacency"].text
    alone = page_of(runs[0])
    assert lines_of(alone) == [f"Not counted: {what} {why}" for what in SECTIONS.values()]


@pytest.mark.parametrize("file", ["part_1/indices.npy", "part_0/indptr.npy", "layout.json"])
@pytest.mark.parametrize("how", ["shorter", "other", "missing"])
def test_damage_is_said_and_the_page_is_written(undrawn, tmp_path: Path, graph: Path, file: str, how: str) -> None:
    run = run_of(graph, tmp_path / "run")
    content = (graph / file).read_bytes()
    if how == "missing":
        (graph / file).unlink()
    else:
        (graph / file).write_bytes(content[:-9] if how == "shorter" else content[:-9] + b"        7")
    lines = lines_of(page_of(run))
    assert len(lines) == 3 and not (tmp_path / "cache" / "statistics").exists()
    for line, what in zip(lines, SECTIONS.values()):
        assert line.startswith(f"Not counted: {what} (the prepared graph is damaged: {graph / file} ")
        assert line.endswith(f": delete the folder {graph}, and the next run prepares it anew; {COUNTED_BY}).")


def test_facts_that_do_not_fit_are_no_crash(undrawn, tmp_path: Path, graph: Path) -> None:
    run = run_of(graph, tmp_path / "run")
    about = json.loads((graph / "layout.json").read_text())
    about["facts"]["num_nodes"] = 3
    (graph / "layout.json").write_text(json.dumps(about))
    assert all(f"{graph}/layout.json (checksum)" in line and COUNTED_BY in line for line in lines_of(page_of(run)))
    del about["files"]["part_0/indices.npy"]
    (graph / "layout.json").write_text(json.dumps(about))
    assert len(lines_of(page_of(run))) == 3


def test_another_graph_under_the_same_key_is_not_that_of_the_run(undrawn, tmp_path: Path, graph: Path) -> None:
    run = run_of(graph, tmp_path / "run")
    told = json.loads((run / "record.json").read_text())
    (run / "record.json").write_text(json.dumps(told | {"edge_cut": told["edge_cut"] / 2}))
    assert f"{graph} does not hold the graph of the run any more; {COUNTED_BY}" in lines_of(page_of(run))[0]
    (run / "record.json").write_text(json.dumps(told))
    (run / "config.yaml").unlink()
    assert "config.yaml does not say whether there are self_loops" in lines_of(page_of(run))[0]


def test_damaged_counts_are_counted_again(undrawn, tmp_path: Path, graph: Path, counted: list[Any]) -> None:
    run = run_of(graph, tmp_path / "run")
    first = page_of(run)
    (file,) = (tmp_path / "cache" / "statistics").iterdir()
    file.write_bytes(file.read_bytes()[:-30])
    assert page_of(run).sections == first.sections and len(counted) == 2


def test_a_cache_that_cannot_be_written(
    undrawn, tmp_path: Path, graph: Path, counted: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    runs = [run_of(graph, tmp_path / name, reorder=name) for name in ("a", "b")]
    (tmp_path / "cache" / "statistics").touch()  # where a folder would be
    assert lines_of(page_of(*runs, out=tmp_path / "page")) == [] and len(counted) == 1
    assert "cannot be written" in caplog.text and "the result is not cached" in caplog.text
