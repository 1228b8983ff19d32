"""Runs that differ in the seed alone are one on the page, with a mean, a standard deviation and a band."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.report.replicates import Mean
from fullgnn.report.runs import read_runs
from fullgnn.report.sweep import seeds_table
from tests.report.folders import numbers, page_of, record, structure, write_epochs, write_run

pytest.importorskip("matplotlib")


def seeded(folder: Path, seed: int, lr: float = 0.1, run: str = "", **changes: Any) -> Path:
    told = record(seed=seed, epoch_time_ms={"median": 10.0 + seed, "p20": 9.0 + seed, "p80": 12.0 + seed}, **changes)
    told |= {"final_loss": 0.25 + seed / 8, "test_accuracy": 0.5 + seed / 4}
    path = write_run(folder / (run or f"lr{lr}_s{seed}"), told, f"seed: {seed}\noptimizer: {{lr: {lr}}}\n", structure())
    lines = [json.loads(line) for line in (path / "epochs.jsonl").read_text().splitlines()]
    write_epochs(path, (line | {"loss": line["loss"] + seed * lr} for line in lines))
    return path


def test_seeds_are_one_run(undrawn, tmp_path: Path) -> None:
    paths = [seeded(tmp_path, seed, lr) for lr in (0.1, 0.2) for seed in (0, 1)]
    runs, _ = read_runs(paths)
    assert [run.name for run in runs] == [f"lr{lr}_s0 … lr{lr}_s1 (2 seeds)" for lr in (0.1, 0.2)]
    assert runs[1].folder == f"{tmp_path}/{{lr0.2_s0,lr0.2_s1}}" and runs[0].position == 0
    page = page_of(*paths, out=tmp_path / "page")
    assert "4 runs side by side" in page.sections[""].text and "Means over the seeds 0, 1." in page.sections[""].text
    results = numbers(page.sections["Summary"], "The runs side by side")
    assert results["optimizer.lr"] == ["0.1", "0.2"] and results["seed"] == ["0, 1", "0, 1"]
    assert results["epoch, median"] == ["10.500 ± 0.707 ms"] * 2
    assert results["last training loss"] == ["0.3125 ± 0.0883883"] * 2
    assert results["test accuracy, best epoch"] == ["62.50 ± 17.68 %"] * 2 and results["SpMM"] == ["5.000 ms"] * 2
    by_epoch = page.sections["Loss and accuracy"].tables["Loss and accuracy by epoch"]
    assert by_epoch[1][1:3] == ["1.05 ± 0.0707107", "1.1 ± 0.141421"]
    assert "Bands: the mean over the seeds" in page.sections["Loss and accuracy"].text
    images = {name: len(section.images) // 2 for name, section in page.sections.items()}
    assert (images["Time by phase"], images["Bytes by collective"], images["Loss and accuracy"]) == (2, 2, 3)
    told = page.sections["Configuration"].text
    assert told.count("seed: 0") == 2 and "seed: 1" not in told


def test_a_sweep_over_seeds_alone_is_one_run(undrawn, tmp_path: Path) -> None:
    folder = tmp_path / "cora"
    for job in range(3):
        seeded(folder, job, run=str(job))
    (folder / "sweep.csv").write_text("job,status,overrides\n" + "".join(f"{k},ok,seed={k} lr=1\n" for k in range(3)))
    (run,), _ = read_runs([folder])
    assert (run.name, run.prefix) == ("cora (3 seeds)", "")
    loss = run.epochs[0]["loss"]
    assert isinstance(loss, Mean)
    assert (loss, loss.std) == pytest.approx((1.1, np.std([0, 0.1, 0.2], ddof=1)))
    page = page_of(folder)
    assert numbers(page.sections["Summary"], "Result")["epoch, median"] == ["11.000 ± 1.000 ms"]


def test_a_sweep_over_seeds_and_more_is_named_by_the_rest(tmp_path: Path) -> None:
    folder, rows = tmp_path / "sweep", ["job,status,overrides"]
    for job, (seed, lr) in enumerate((seed, lr) for seed in (0, 1) for lr in (0.1, 0.2)):
        seeded(folder, seed, lr, run=str(job))
        rows.append(f"{job},ok,seed={seed} optimizer.lr={lr}")
    (folder / "sweep.csv").write_text("\n".join(rows) + "\n")
    runs, _ = read_runs([folder])
    assert [run.name for run in runs] == ["optimizer.lr=0.1 (2 seeds)", "optimizer.lr=0.2 (2 seeds)"]


@pytest.mark.parametrize(
    "change", [{"world_size": 4}, {"device": "cuda"}, {"git_commit": "def"}, {"hardware": {"gpu": "another"}}]
)
def test_runs_that_differ_in_more_than_the_seed_stay_apart(tmp_path: Path, change: dict[str, Any]) -> None:
    runs, _ = read_runs([seeded(tmp_path, 0), seeded(tmp_path, 1, **change)])
    assert [run.name for run in runs] == ["lr0.1_s0", "lr0.1_s1"]


def test_runs_of_one_seed_stay_apart_and_seeds_that_repeat_go_by_folder(tmp_path: Path) -> None:
    before = [seeded(tmp_path / "before", seed) for seed in (0, 1)]
    after = [seeded(tmp_path / "after", seed) for seed in (0, 1)]
    runs, _ = read_runs([before[0], after[0]])
    assert [run.name for run in runs] == ["before/lr0.1_s0", "after/lr0.1_s0"]
    runs, _ = read_runs([*before, *after])
    assert [[path.parent.name for path in run.paths] for run in runs] == [["before"] * 2, ["after"] * 2]
    assert len({run.name for run in runs}) == 2


def test_a_seed_that_has_not_finished_stays_apart(undrawn, tmp_path: Path) -> None:
    paths = [seeded(tmp_path, seed) for seed in (0, 1, 2)]
    (paths[1] / "record.json").unlink()
    runs, _ = read_runs(paths)
    assert [(run.name, len(run.paths)) for run in runs] == [("lr0.1_s0 … lr0.1_s2 (2 seeds)", 2), ("lr0.1_s1", 1)]
    assert "It has not finished" in page_of(*paths, out=tmp_path / "page").sections[""].text


def drawn(folder: Path, accuracy: float, **keys: Any) -> Path:
    """A run whose configuration has ``keys``, with underscores in place of dots."""
    settings = {"seed": 0} | {key.replace("__", "."): value for key, value in keys.items()}
    return write_run(folder, record(test_accuracy=accuracy), "".join(f"{k}: {v}\n" for k, v in settings.items()))


SPLITS: dict[str, tuple[str, list[Any]]] = {
    "the seed of the dataset": ("dataset__seed", [0, 1, 2]),
    "the number of a split": ("dataset__split", [0, 1, 2]),
    "a fold": ("dataset__fold", [3, 4, 5]),
    "held-out edges": ("task__split_seed", [0, 1, 2]),
}


@pytest.mark.parametrize("name", SPLITS)
def test_random_splits_are_one_run_and_none_is_the_best(undrawn, tmp_path: Path, name: str) -> None:
    """Three splits with 0.70, 0.78 and 0.74 have the mean 0.74 and the standard deviation 0.04."""
    key, values = SPLITS[name]
    paths = [drawn(tmp_path / str(k), (0.7, 0.78, 0.74)[k], **{key: value}) for k, value in enumerate(values)]
    page = page_of(*paths, out=tmp_path / "page")
    (run,), _ = read_runs(paths)
    assert run.name.endswith("(3 splits)") and page.bold == []
    assert numbers(page.sections["Summary"], "Result")["test accuracy, best epoch"] == ["74.00 ± 4.00 %"]
    other = drawn(tmp_path / "other", 0.9, **{key: values[0]}, model__dropout=0.5)
    page = page_of(*paths, other, out=tmp_path / "page")
    assert page.bold == ["90.00 %"]
    told = f"Means over {key.replace('__', '.')} {', '.join(map(str, values))}."
    assert told in page.sections[""].text


def test_the_name_of_a_split_is_a_setting(undrawn, tmp_path: Path) -> None:
    paths = [drawn(tmp_path / split, 0.7 + k / 10, dataset__split=split) for k, split in enumerate(("public", "full"))]
    assert page_of(*paths, out=tmp_path / "page").bold == ["80.00 %"]


def test_seeds_and_splits_of_links_that_follow_the_seed_are_one_run(tmp_path: Path) -> None:
    """``task.seed`` is that of the run, and both may differ with the split."""
    for seed, split in itertools.product((0, 1), (0, 1)):
        drawn(tmp_path / f"{seed}{split}", 0.5, seed=seed, task__seed=seed, dataset__seed=split)
    (run,), _ = read_runs([tmp_path])
    assert run.name.endswith("(4 runs)") and run.settings["dataset.seed"] == "0, 1" == run.settings["task.seed"]


def test_replicates_that_cannot_be_joined_are_not_bold(undrawn, tmp_path: Path) -> None:
    """A seed that occurs twice in one folder keeps the runs apart. They are replicates all the same."""
    paths = [drawn(tmp_path / str(k), (0.5, 0.6, 0.9)[k], dataset__seed=(0, 0, 1)[k]) for k in range(3)]
    page = page_of(*paths, out=tmp_path / "page")
    assert page.sections["Summary"].tables["The runs side by side"][0][1:] == ["0", "1", "2"] and page.bold == []


def test_a_sweep_over_splits_has_their_means_on_the_screen() -> None:
    overrides = [f"model=gcn dataset.seed={k} seed={k}" for k in range(3)]
    rows = [{"status": "ok", "overrides": told, "test_accuracy": k / 10} for k, told in enumerate(overrides)]
    assert "10.00 ± 10.00 %" in seeds_table(rows)
