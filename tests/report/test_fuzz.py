"""Damaged files of runs: the report names the file in one line, or reads it as another reader does."""

import json
from pathlib import Path

import numpy as np

from fullgnn.report import page
from fullgnn.report.runs import read_runs
from tests.damage import assert_refused_or_right, damaged, damaged_npz, unpacked
from tests.report.damaged_files import FILES, damaged_json, finite
from tests.report.folders import record, structure, write_run


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
