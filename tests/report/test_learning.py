"""Curves that agree are one line, and a sentence says which and how well."""

import math
from pathlib import Path

import pytest

from fullgnn.report.learning import MAX_CELLS, difference
from tests.report.folders import page_of, record, write_epochs, write_run

pytest.importorskip("matplotlib")


def trained(folder: Path, losses: list[float | None], accuracy: float = 0.5) -> Path:
    run = write_run(folder, record(), f"run_dir: {folder}\n")
    write_epochs(run, ({"epoch": k, "loss": loss, "val_accuracy": accuracy} for k, loss in enumerate(losses, 1)))
    return run


def test_differences_are_relative_and_at_shared_epochs() -> None:
    assert difference({1: 2.0, 2: 4.0}, {1: 2.0, 2: 5.0}) == 0.2
    assert difference({1: 2.0, 2: 4.0}, {1: 2.0}) == 0.0
    assert difference({1: 2.0}, {2: 2.0}) == math.inf
    assert difference({1: math.nan, 2: 0.0}, {1: math.nan, 2: 0.0}) == 0
    assert difference({1: math.nan}, {1: 1.0}) == math.inf


def test_curves_that_agree_are_one_line_and_a_sentence(undrawn, tmp_path: Path) -> None:
    runs = [trained(tmp_path / "a", [1.0, 0.5]), trained(tmp_path / "b", [1.0 + 3e-8, 0.5])]
    runs += [trained(tmp_path / "c", [1.0, 0.5 - 1e-9]), trained(tmp_path / "d", [1.0, 0.5 + 1e-5])]
    section = page_of(*runs, out=tmp_path / "page").sections["Loss and accuracy"]
    told = "agree, and one line stands for them:"
    assert f"The curves of a, b and c {told} training loss to 3e-8 (largest relative difference).\n" in section.text
    assert f"The curves of all runs {told} validation accuracy exactly.\n" in section.text
    header = section.tables["Loss and accuracy by epoch"][0]
    assert header == ["epoch", "a and 2 others: training loss", "d: training loss", "all runs: validation accuracy"]
    loss = section.images[0]["alt"]
    assert loss == "Training loss by epoch: a and 2 others from 1 to 0.5; d from 1 to 0.50001."


def test_a_curve_that_ends_early_is_compared_with_the_longest(undrawn, tmp_path: Path) -> None:
    losses: dict[str, list[float | None]] = {"killed": [1.0], "a": [1.0, 0.5], "b": [1.0, 0.4]}
    runs = [trained(tmp_path / name, of_run) for name, of_run in losses.items()]
    section = page_of(*runs, out=tmp_path / "page").sections["Loss and accuracy"]
    told = "killed and a agree, in the epochs that they share, and one line stands for them: training loss"
    assert f"The curves of {told}" in section.text
    header, _, last = section.tables["Loss and accuracy by epoch"]
    assert header[1:3] == ["killed and a: training loss", "b: training loss"] and last[1:3] == ["0.5", "0.4"]


def test_curves_that_differ_have_no_sentence(undrawn, tmp_path: Path) -> None:
    runs = [trained(tmp_path / "a", [1.0, 0.5], 0.5), trained(tmp_path / "b", [1.0, None], 0.25)]
    section = page_of(*runs, out=tmp_path / "page").sections["Loss and accuracy"]
    assert "agree" not in section.text
    assert section.tables["Loss and accuracy by epoch"][2][1:3] == ["0.5", "–"]


def test_a_long_table_leaves_epochs_out_and_says_so(undrawn, tmp_path: Path) -> None:
    run = trained(tmp_path / "long", [1.0] * (MAX_CELLS // 2 + 1))
    (caption, table) = next(iter(page_of(run).sections["Loss and accuracy"].tables.items()))
    assert caption == "Loss and accuracy by epoch, one epoch in 2: epochs.jsonl has all of them"
    assert [row[0] for row in table[1:3]] == ["1", "3"] and table[-1][0] == str(MAX_CELLS // 2 + 1)
