"""Means over seeds, splits and folds: in the table of a sweep, in files for a paper, and on the page of a report."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.report.means import as_csv, as_markdown, means_table, ranked
from fullgnn.report.replicates import Mean
from fullgnn.report.sweep import settings_of
from fullgnn.storage.folder import prepare_sweep
from tests.report.folders import page_of, record, write_run
from tests.report.sweep_tables import finished, table_of

FOLDS = {"gcn": [0.7, 0.78, 0.74], "sage": [0.8, 0.9, 0.85], "gat": [0.1, 0.2, 0.3]}


def of_fold(accuracy: float, **changes: Any) -> Any:
    fields = {"val_accuracy": accuracy, "test_accuracy": accuracy - 0.05}
    return finished(fields | {"val_roc_auc": accuracy, "train_accuracy": 1.0}, **fields, **changes)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """The folder of a sweep over three folds of three models, of which one job has failed; none of its lines is in the
    order of the accuracies."""
    jobs = [(model, fold) for fold in range(3) for model in FOLDS]
    overrides = [["dataset.split=kfold", f"dataset.fold={fold}", f"model={model}"] for model, fold in jobs]
    outcomes = [ValueError("no") if job == ("gat", 1) else of_fold(FOLDS[job[0]][job[1]]) for job in jobs]
    table_of(tmp_path, *outcomes, overrides=overrides, end=True)
    return tmp_path


def test_the_files_of_a_sweep_have_the_means_of_numpy_best_first(sweep: Path) -> None:
    with open(sweep / "means.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["setting"] for row in rows] == ["model=sage", "model=gcn", "model=gat"]
    assert [row["runs"] for row in rows] == ["3", "3", "2"]
    used = {**FOLDS, "gat": [0.1, 0.3]}
    for row in rows:
        values = np.array(used[row["setting"].partition("=")[2]])
        for name, shift in (("val_accuracy", 0), ("test_accuracy", 0.05), ("val_roc_auc", 0)):
            assert float(row[name]) == pytest.approx(np.mean(values - shift), abs=1e-12)
            assert float(row[f"{name}_std"]) == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    assert "train_accuracy" not in rows[0]
    lines = (sweep / "means.md").read_text().splitlines()
    assert lines[0] == ("| setting | runs | validation accuracy | test accuracy | validation roc_auc | epoch, median |")
    assert lines[1].count("---:") == 5 and len(lines) == 5
    assert lines[2] == "| model=sage | 3 | 85.00 ± 5.00 % | 80.00 ± 5.00 % | 0.8500 ± 0.0500 | 1.00 ms |"


def test_a_sweep_without_replicates_has_no_such_files_and_those_of_an_earlier_one_go(sweep: Path) -> None:
    (sweep / "mine.md").write_text("of the user")
    prepare_sweep(sweep, overwrite=True)
    assert [file.name for file in sweep.iterdir()] == ["mine.md"]
    table_of(sweep, of_fold(0.5), of_fold(0.6), overrides=[["model=gcn"], ["model=sage"]], end=True)
    assert sorted(file.name for file in sweep.iterdir()) == ["mine.md", "sweep.csv"]


def test_files_of_these_names_that_no_sweep_has_written_stay(tmp_path: Path) -> None:
    (tmp_path / "means.md").write_text("of the user")
    prepare_sweep(tmp_path, overwrite=True)
    assert (tmp_path / "means.md").is_file()


def test_settings_are_ranked_by_the_first_validation_metric() -> None:
    errors = {name: {"runs": 1, "val_rmse": error} for name, error in (("a", 2.0), ("b", None), ("c", 1.0))}
    assert list(ranked(errors)) == ["c", "a", "b"]
    assert list(ranked({"a": {"val_mine": 1.0, "test_mine": 9.0}, "b": {"val_mine": 2.0}})) == ["b", "a"]
    without = {"a": {"test_accuracy": 0.1}, "b": {"test_accuracy": 0.9}}
    assert list(ranked(without)) == ["a", "b"]  # the test nodes choose nothing
    assert "| a |" in as_markdown(errors) and means_table(errors)[1][2][2] == "–"
    assert as_csv(errors).splitlines()[1:] == ["c,1,1.0,,,", "a,1,2.0,,,", "b,1,,,,"]


def test_a_name_with_a_bar_stays_one_cell() -> None:
    (_, _, line) = as_markdown({"dataset.path=a|b": {"runs": 2, "val_f1": Mean([0.5, 0.7])}}).splitlines()
    assert line.count("|") == 5 and "0.6000 ± 0.1414" in line


def test_splits_seeds_and_folds_are_one_setting() -> None:
    keys = ("dataset.split={}", "dataset.split=kfold dataset.fold={}", "seed={}", "dataset.split_seed={}")
    for key in keys:
        rows = [{"overrides": key.format(k), "status": "ok", "val_accuracy": k / 4} for k in range(3)]
        (setting,) = settings_of(rows).values()
        assert setting["runs"] == 3 and setting["val_accuracy"] == 0.25
    rows = [{"overrides": f"dataset.split={name}", "status": "ok"} for name in ("random", "stratified")]
    assert len(settings_of(rows)) == 2


def run_of(folder: Path, model: str, fold: int, **changes: Any) -> Path:
    accuracy = FOLDS[model][fold]
    told = record(model=model, metrics={"val_f1": accuracy, "test_f1": accuracy - 0.05}, **changes)
    config = f"seed: 0\nmodel: {{name: {model}}}\ndataset: {{split: kfold, fold: {fold}}}\n"
    return write_run(folder / f"{model}{fold}", told | {"test_accuracy": None}, config)


def test_the_page_has_the_means_best_first_and_files_beside_it(undrawn: Any, tmp_path: Path) -> None:
    paths = [run_of(tmp_path, model, fold) for model in FOLDS for fold in range(3)]
    page = page_of(*paths, out=tmp_path / "page")
    tables = page.sections["Means over seeds and splits"].tables
    table = tables["Mean ± standard deviation, the best validation metric first"]
    assert table[0] == ["setting", "runs", "validation f1", "test f1", "epoch, median"]
    assert [row[1:4] for row in table[1:]] == [
        ["3", "0.8500 ± 0.0500", "0.8000 ± 0.0500"],
        ["3", "0.7400 ± 0.0400", "0.6900 ± 0.0400"],
        ["3", "0.2000 ± 0.1000", "0.1500 ± 0.1000"],
    ]
    assert "sage" in table[1][0] and "(3 splits)" in table[1][0]
    lines = (tmp_path / "page" / "report_means.md").read_text().splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == table[1]
    assert len((tmp_path / "page" / "report_means.csv").read_text().splitlines()) == 4
    page = page_of(paths[0], paths[3], out=tmp_path / "page")
    assert "Means over seeds and splits" not in page.sections and not (tmp_path / "page" / "report_means.md").exists()


def test_the_page_has_the_confusion_matrix_of_the_test_nodes(undrawn: Any, tmp_path: Path) -> None:
    matrices = {"val": [[9, 0], [0, 9]], "test": [[5, 1], [0, 0]]}
    folder = run_of(tmp_path, "gcn", 0, confusion=matrices)
    section = page_of(folder).sections["Confusion matrix"]
    (table,) = section.tables.values()
    assert table == [["class", "0", "1", "recall"], ["0", "5", "1", "83.33 %"], ["1", "0", "0", "-"]]
    large = np.zeros((40, 40), int)
    large[3, 7], large[5, 1], large[2, 2], large[3, 3] = 6, 9, 100, 2
    folder = run_of(tmp_path, "sage", 0, confusion={"test": large.tolist()})
    (table,) = page_of(folder).sections["Confusion matrix"].tables.values()
    assert table[1:] == [["5", "1", "9", "100.00 %"], ["3", "7", "6", "75.00 %"]]
    names = ["cat", "<b>&|\n" + "x" * 99]
    named = run_of(tmp_path, "gcn", 1, confusion=matrices, confusion_classes=names)
    (table,) = page_of(named).sections["Confusion matrix"].tables.values()
    assert table[0] == ["class", "0 cat", "1 <b>&| " + "x" * 9 + "…", "recall"]
    assert [row[0] for row in table[1:]] == ["0 cat", "1 <b>&| " + "x" * 25 + "…"]
    letters = [*map(chr, range(65, 105))]
    named = run_of(tmp_path, "gcn", 2, confusion={"test": large.tolist()}, confusion_classes=letters)
    (table,) = page_of(named).sections["Confusion matrix"].tables.values()
    assert [row[:2] for row in table[1:]] == [["5 F", "1 B"], ["3 D", "7 H"]]
    short = run_of(tmp_path, "sage", 1, confusion=matrices, confusion_classes=["cat"])  # damaged
    (table,) = page_of(short).sections["Confusion matrix"].tables.values()
    assert table[0] == ["class", "0", "1", "recall"]
    assert "Confusion matrix" not in page_of(run_of(tmp_path, "gat", 0)).sections
