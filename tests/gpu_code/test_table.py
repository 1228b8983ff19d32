"""The kernels that the host launches at the widths of the four models read whole vectors and spill no register."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT
from tests.gpu_code.commands import output_of
from tests.triton_device import needs_triton

pytestmark = needs_triton

FIGURES = ROOT / "docs" / "results" / "gpu" / "compiled.csv"
ATTENTION = {"gat": ("1 x 41", "4 x 47"), "gatv2 with dropout": ("8 x 8", "1 x 41")}
KERNELS, WIDTHS = ("csr", "packed", "sparse X W", "sparse X^T G"), ("41",)
"""A sample, since the command takes minutes for the whole table."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows that the command finds for the sample, in a process without the interpreter."""
    out = tmp_path_factory.mktemp("compiled") / "compiled.json"
    names = ["--kernels", ",".join(KERNELS), "--widths", ",".join(WIDTHS)]
    page = output_of("tests.gpu_code.table", *names, "--out", str(out))
    assert all(f"| {kernel} " in page for kernel in KERNELS)
    return json.loads(out.read_text())["rows"]


@pytest.mark.sample(3, "compiled")
def test_rows_of_x_are_read_in_vectors(compiled: list[dict[str, Any]]) -> None:
    for row in compiled:
        assert row["loads"] and row["scalar_loads"] == 0, row


@pytest.mark.sample(3, "compiled")
def test_the_published_figures_are_those_of_now(compiled: list[dict[str, Any]]) -> None:
    """The loads alone, which the host's code decides; other figures may change with the compiler."""
    with FIGURES.open(newline="") as file:
        published = {(line["kernel"], line["width"], line["function"]): line for line in csv.DictReader(file)}
    for row in compiled:
        line = published[row["kernel"], row["width"], row["function"]]
        figures = {size: int(line[f"loads_of_{size}_bytes"]) for size in ("16", "8", "fewer")}
        assert figures == {"16": row["loads"].get("16", 0), "8": row["loads"].get("8", 0), "fewer": 0}, (
            "run: python -m tests.gpu_code.table --before docs/results/gpu/compiled_before.json"
            " --csv docs/results/gpu/compiled.csv"
        )


@pytest.mark.sample(3, "compiled")
def test_no_register_is_spilled(compiled: list[dict[str, Any]]) -> None:
    for row in compiled:
        assert row["stack_bytes"] == 0 and row["ctas"] >= 1, row


@pytest.mark.sample(3, "compiled")
def test_every_kind_of_row_is_met(compiled: list[dict[str, Any]]) -> None:
    """The kinds are bins of rows, the parts of heavy rows and their sums, and panels."""
    kinds = {(row["kernel"], row["width"], row["function"]): row["compiled"] for row in compiled}
    for width in WIDTHS:
        assert kinds["sparse X W", width, "sum_rows"] >= 3 and kinds["sparse X^T G", width, "sum_rows"] >= 1, kinds
        assert kinds["csr", width, "sum_rows"] >= 6 and kinds["packed", width, "multiply_planes"] >= 1, kinds


@pytest.mark.sample(3)
def test_scores_read_both_rows_16_bytes_at_a_time(tmp_path: Path) -> None:
    """At the width 41, too, whose rows are padded."""
    out = tmp_path / "scores.json"
    output_of("tests.gpu_code.table", "--kernels", "scores", "--out", str(out))
    rows = json.loads(out.read_text())["rows"]
    assert [(row["function"], row["width"]) for row in rows] == [("_scores", "64"), ("_scores", "41")]
    for row in rows:
        assert {*row["loads"]} == {"16"} and row["loads"]["16"] % 2 == row["stack_bytes"] == 0, row


@pytest.mark.sample(8)
@pytest.mark.parametrize("kernel", ATTENTION)
def test_attention_reads_vectors_and_leaves_room_for_five_programs(tmp_path: Path, kernel: str) -> None:
    """At head widths that are no power of two as well, and hardly any thread waits for another one in the loop."""
    out, widths = tmp_path / "attention.json", ATTENTION[kernel]
    output_of("tests.gpu_code.table", "--kernels", kernel, "--widths", ",".join(widths), "--out", str(out))
    rows = [row for row in json.loads(out.read_text())["rows"] if row["function"] != "sum_rows"]
    assert len(rows) == 3 * len(widths)
    for row in rows:
        assert row["loads"].keys() == {"16"} and row["ctas"] >= 5 and row["barriers"] <= 2, row
        assert row["stack_bytes"] <= 16, row  # four words, where registers are limited


@pytest.mark.sample(4)
def test_the_largest_rows_are_read_in_vectors(tmp_path: Path) -> None:
    """Rows of 41 columns, too."""
    out = tmp_path / "max.json"
    output_of("tests.gpu_code.table", "--kernels", "max", "--out", str(out))
    (row,) = (row for row in json.loads(out.read_text())["rows"] if row["function"] == "largest_neighbours")
    assert row["loads"].keys() == {"16"} and row["stack_bytes"] == 0, row


def test_the_table_shows_what_has_changed() -> None:
    from tests.gpu_code.table import make_table

    row = {"kernel": "csr", "width": "41", "function": "sum_rows", "compiled": 7, "stack_bytes": 0, "barriers": 8}
    old = row | {"loads": {"4": 48}, "registers": 134, "shared_bytes": 1024, "ctas": 6}
    new = row | {"loads": {"16": 12}, "registers": 96, "shared_bytes": 1024, "ctas": 10, "barriers": None}
    cells = [cell.strip() for cell in make_table([new], [old]).splitlines()[-1].strip("|").split("|")]
    expected = ["csr", "41", "sum_rows", "7", "0 / 0 / 48 → 12 / 0 / 0", "134 → 96", "0", "1.0", "6 → 10", "8 → -"]
    assert cells == expected
    assert "134 → none" in make_table([], [old]).splitlines()[-1]


def test_a_csv_has_the_values_before_and_now(tmp_path: Path) -> None:
    from tests.gpu_code.table import write_csv

    row = {"kernel": "csr", "width": "41", "function": "sum_rows", "compiled": 7, "stack_bytes": 0, "barriers": 8}
    old = row | {"loads": {"4": 48}, "registers": 134, "shared_bytes": 1024, "ctas": 6}
    new = row | {"loads": {"16": 12, "8": 1}, "registers": 96, "shared_bytes": 1024, "ctas": 10, "barriers": None}
    write_csv([new], [old, old | {"width": "8"}], tmp_path / "found.csv")
    with (tmp_path / "found.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["width"], first["registers_before"], first["registers"]) == ("41", "134", "96")
    assert (first["loads_of_fewer_bytes_before"], first["loads_of_16_bytes"], first["loads_of_8_bytes"]) == (
        "48",
        "12",
        "1",
    )
    assert (first["barriers_an_iteration_before"], first["barriers_an_iteration"]) == ("8", "")
    assert (second["width"], second["registers_before"], second["registers"]) == ("8", "134", "")
