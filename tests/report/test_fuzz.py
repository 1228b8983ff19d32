"""Damaged files of runs: the report names the file in one line, or reads it as another reader does."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.report import page
from fullgnn.report.runs import read_runs
from tests.damage import assert_refused_or_right, damaged, damaged_npz, damaged_text, unpacked
from tests.report.folders import record, structure, write_run

FILES = ("record.json", "epochs.jsonl", "structure.npz", "config.yaml")
VALUES = (None, True, -1, 0, 2**80, 1e308, "x", [], {}, [[]], {"a": {}})


def damaged_json(content: bytes, seed: int) -> bytes:
    """A JSON text with a damage drawn from ``seed``: of a byte, a number or a value, or one of great depth."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(5)
    if kind == 0:
        return damaged(content, seed)
    if kind == 1:
        return damaged_text(content, seed)
    if kind == 2 and seed % 20 == 0:
        return b"[" * 100_000
    if kind == 2:
        return content.replace(b":", rng.choice([b": NaN,", b": 1e999,", b": " + b"9" * 400 + b", "]) + b'"more":', 1)
    lines = content.split(b"\n")
    at = int(rng.integers(max(1, len(lines) - 1)))
    told = json.loads(lines[at])
    places: list[Any] = [told]
    for place in places:
        inside = list(place.values()) if isinstance(place, dict) else place
        places += [child for child in inside if isinstance(child, dict | list) and child]
    place = places[int(rng.integers(len(places)))]
    key = int(rng.integers(len(place))) if isinstance(place, list) else list(place)[int(rng.integers(len(place)))]
    if kind == 3:
        del place[key]
    else:
        place[key] = VALUES[int(rng.integers(len(VALUES)))]
    lines[at] = json.dumps(told).encode()
    return b"\n".join(lines)


def finite(node: Any) -> Any:
    """What is left of JSON values when numbers that are not finite are null."""
    if isinstance(node, dict):
        return {key: finite(child) for key, child in node.items()}
    if isinstance(node, list):
        return [finite(child) for child in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node


def check(folder: Path, files: dict[str, bytes], file: str, seed: int) -> None:
    by_kind = {"structure.npz": damaged_npz, "config.yaml": damaged}
    contents = files | {file: by_kind.get(file, damaged_json)(files[file], seed)}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    runs, search = read_runs([folder], lambda run: page.sections([run], []))
    (run,) = runs
    told = finite(json.loads(contents["record.json"]))
    for key in (told.keys() | run.record.keys()) - {"tile_density"}:
        assert run.record.get(key) == told.get(key), key  # a null may be left out
    lines = contents["epochs.jsonl"].decode(errors="replace").splitlines()
    assert run.epochs == [json.loads(line) for line in lines[: len(run.epochs)]]
    assert run.structure is not None
    members = unpacked(contents["structure.npz"])
    values = np.asarray(run.structure.block_nnz)
    stored = members["block_nnz.npy"][-values.nbytes :]
    order = "F" if b"'fortran_order': True" in members["block_nnz.npy"] else "C"
    assert np.frombuffer(stored, values.dtype).reshape(values.shape, order=order).tolist() == values.tolist()
    page.write_images = lambda *_: []  # type: ignore[assignment]  # drawing takes a second
    page.write_page(runs, search, folder / "out")


def test_a_damaged_file_of_a_run_is_named_or_read_right(tmp_path: Path, every_case: bool) -> None:
    folder = write_run(tmp_path / "run", record(), arrays=structure())
    files = {name: (folder / name).read_bytes() for name in FILES}
    cases = [(folder, files, FILES[seed % 4 if seed % 8 < 4 else 0], seed) for seed in range(300 if every_case else 10)]
    assert_refused_or_right(check, cases)
