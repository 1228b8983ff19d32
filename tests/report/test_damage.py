"""A damaged run never hides the others: the page shows these, and the page and the log name the damaged one."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.errors import ConfigError
from fullgnn.report.__main__ import report
from fullgnn.report.runs import read_runs
from tests.damage import damaged
from tests.report.damaged_files import FILES, damaged_json
from tests.report.folders import page_of, record, structure, write_run

pytest.importorskip("matplotlib")

RANK = record()["ranks"][0]
DAMAGED_RECORDS: dict[str, Any] = {
    "empty": "",
    "cut off": json.dumps(record())[:300],
    "no object": "[1, 2]",
    "deep": "[" * 100_000,
    "deep in a field": json.dumps(record())[:-1] + ', "versions": ' + '{"a":' * 5_000 + "1" + "}" * 5_000 + "}",
    "not UTF-8": b'{"dataset": "\xff"}',
    "many digits": '{"epoch_time_ms": {"median": 1}, "num_nodes": ' + "9" * 5_000 + "}",
    "a number beyond reason": record(num_nodes=10**400),
    "text for a number": record(nnz="many"),
    "text for a time": record(epoch_time_ms={"median": "fast"}),
    "a number for a text": record(dataset=3),
    "a list for a text": record(scheme=["1d"]),
    "a number for a list": record(ranks=3),
    "a text for a rank": record(ranks=["first"]),
    "ranks without times": record(ranks=[RANK | {"time_ms": None}]),
    "text for the time of a rank": record(ranks=[RANK | {"time_ms": {"epoch": "x"}}]),
    "text for bytes": record(ranks=[RANK | {"bytes_received": "none"}]),
    "text for the density of tiles": record(tile_density={"0-1": "all"}),
    "text for a prediction": record(predicted="soon"),
    "text for predicted times": record(predicted={"time_ms": {"spmm": "x", "comm": 1, "dense": 1, "other": 1}}),
    "text for a metric": record(metrics={"val_mrr": "high"}),
    "text for sampling": record(sampling={"time_ms": "x"}),
}
HARMLESS_RECORDS: dict[str, Any] = {
    "null for what is never null": record(world_size=None, nnz=None, hardware=None, versions=None, ranks=None),
    "nothing but times": {"epoch_time_ms": {"median": 2.0, "p20": 1.0, "p80": 3.0}},
    "no times": record(epoch_time_ms={"median": None, "p20": None, "p80": None}),
    "numbers that are not finite": record(final_loss=float("nan"), test_accuracy=float("inf")),
    "fields of a newer version": record(energy_joules={"gpu": [1, {"a": None}]}, mood="good"),
}


def with_record(folder: Path, content: Any) -> Path:
    write_run(folder, record(), arrays=structure())
    if isinstance(content, dict):
        content = json.dumps(content)
    (folder / "record.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def of_lines(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "epochs.jsonl").write_text(text)


def archive(**arrays: Any) -> Callable[[Path], object]:
    return lambda folder: np.savez(folder / "structure.npz", **{**vars(structure()), **arrays})


DAMAGED_FILES: dict[str, Callable[[Path], object]] = {
    "config of no YAML": lambda folder: (folder / "config.yaml").write_text("a: [1"),
    "config of a list": lambda folder: (folder / "config.yaml").write_text("- 1\n- 2\n"),
    "deep config": lambda folder: (folder / "config.yaml").write_text("a: " + "[" * 20_000),
    "config with aliases": lambda folder: (folder / "config.yaml").write_text(
        "a: &a [x, x]\n" + "".join(f"b{k}: &b{k} [*{'a' if k == 0 else f'b{k - 1}'}, *a]\n" for k in range(40))
    ),
    "config with code": lambda folder: (folder / "config.yaml").write_text("a: !!python/object/apply:os.system ['']"),
    "config that is not UTF-8": lambda folder: (folder / "config.yaml").write_bytes(b"a: \xff"),
    "structure that is no archive": lambda folder: (folder / "structure.npz").write_text("PK"),
    "structure without an array": lambda folder: np.savez(folder / "structure.npz", block_nnz=np.eye(2)),
    "structure of objects": archive(block_nnz=np.array([[1, 2], [3, None]], object)),
    "structure of texts": archive(block_nnz=np.array([["a", "b"], ["c", "d"]])),
    "structure of fractions": archive(block_nnz=np.full((2, 2), np.nan)),
    "structure of negative counts": archive(block_nnz=np.full((2, 2), -1)),
    "structure of other shapes": archive(block_nnz=np.ones((3, 2), int)),
    "structure whose bounds fall": archive(part_bounds=np.array([0, 6, 2])),
    "structure of scalars": archive(cell_bounds=np.array(3)),
}
HARMLESS_FILES: dict[str, Callable[[Path], object]] = {
    "no epoch": of_lines(""),
    "half a line": of_lines('{"epoch": 1, "loss": 0.5}\n{"epo'),
    "an epoch that is no number": of_lines('{"epoch": "1", "loss": 0.5}\n'),
    "a deep line": of_lines('{"epoch": 1, "loss": 1}\n{"epoch": ' + "[" * 50_000 + "\n"),
    "an epoch beyond reason": of_lines('{"epoch": 1e400, "loss": 0.5}\n{"epoch": 9999999999999999999999}\n'),
    "a loss that is a text": of_lines('{"epoch": 1, "loss": "low", "val_accuracy": [1]}\n{"epoch": 2, "loss": 1}\n'),
    "a loss that is not finite": of_lines('{"epoch": 1, "loss": NaN}\n{"epoch": 2, "loss": 1e999}\n'),
    "lines that are not UTF-8": lambda folder: (folder / "epochs.jsonl").write_bytes(b'{"epoch": 1, "loss": 1}\n\xff'),
    "no config": lambda folder: (folder / "config.yaml").unlink(),
    "an interpolation": lambda folder: (folder / "config.yaml").write_text("seed: 0\na: ${oc.env:HOME}\n"),
}


def test_a_damaged_run_is_left_out_and_named(undrawn, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_run(tmp_path / "whole", record(), arrays=structure())
    for name, content in DAMAGED_RECORDS.items():
        with_record(tmp_path / "damaged" / name, content)
    for name, damage in DAMAGED_FILES.items():
        damage(with_record(tmp_path / "damaged" / name, record()))
    with caplog.at_level(logging.INFO, "fullgnn"):
        page = page_of(tmp_path / "whole", tmp_path / "damaged", out=tmp_path / "page")
    assert page.sections["Summary"].tables["Set-up"][1] == ["dataset", "karate"]  # one run is left
    told = page.sections[""].text
    lines = [line for line in caplog.messages if "left out, since it is damaged" in line]
    for name in (*DAMAGED_RECORDS, *DAMAGED_FILES):
        place = f"{tmp_path / 'damaged' / name}"
        assert place in told and any(place in line for line in lines), name
    assert all(len(line) < 800 and "\n" not in line for line in lines)
    with pytest.raises(ConfigError, match="no run in .*damaged can be read") as caught:
        report([str(tmp_path / "damaged")])
    assert len(str(caught.value)) < 1_000 and "\n" not in str(caught.value)


def test_what_is_missing_or_unknown_is_no_damage(tmp_path: Path) -> None:
    """A field that is null, as in a record of an older version, is one that is missing; a newer version has others."""
    for name, content in HARMLESS_RECORDS.items():
        with_record(tmp_path / name, content)
    for name, change in HARMLESS_FILES.items():
        change(with_record(tmp_path / name, record()))
    page = page_of(tmp_path, out=tmp_path / "page")
    summary = page.sections["Summary"].tables["The runs side by side"]
    assert sorted(summary[0][1:]) == sorted([*HARMLESS_RECORDS, *HARMLESS_FILES])
    assert "Damaged" not in page.sections[""].text


def test_no_damage_hides_the_other_runs(undrawn, tmp_path: Path, every_case: bool) -> None:
    whole = write_run(tmp_path / "whole", record(), arrays=structure())
    for seed in range(300 if every_case else 10):
        file = shutil.copytree(whole, tmp_path / f"chance{seed}") / FILES[seed % len(FILES)]
        damage = damaged_json if file.suffix in (".json", ".jsonl") else damaged
        file.write_bytes(damage(file.read_bytes(), seed))
    runs, search = read_runs([tmp_path])
    assert "whole" in {run.name for run in runs} and len(runs) + len(search.damaged) + len(search.skipped) > 1
    assert (report([str(tmp_path), f"out={tmp_path / 'page'}"])).is_file()


def test_a_damaged_table_of_a_sweep_stands_for_the_jobs_beside_it(undrawn, tmp_path: Path) -> None:
    for content in (b"nonsense\n1", b"\xff\xfe", b"job,status,overrides\n../0,ok,a=1\n", b"job,overrides\n0"):
        folder = tmp_path / f"sweep{content[:2].hex()}{len(content)}"
        for job in range(2):
            write_run(folder / str(job), record(), f"seed: 0\nmodel: {{name: m{job}}}\n")
        (folder / "sweep.csv").write_bytes(content)
        page = page_of(folder)
        names = page.sections["Summary"].tables["The runs side by side"][0][1:]
        assert names == ["job=0", "job=1"], content
        assert f"Damaged, and left out: {folder / 'sweep.csv'} cannot be read" in page.sections[""].text
