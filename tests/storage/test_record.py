"""The files of a run folder."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import ConfigError, DataError
from fullgnn.storage.record import RunFolder, read_epochs, read_record
from fullgnn.telemetry.meter import Cost, EpochRecord
from tests.storage.files import files
from tests.storage.records import whole_record


def test_numbers_that_are_not_finite_become_null(tmp_path) -> None:
    folder = RunFolder(str(tmp_path / "run"), "seed: 0")
    cost = Cost({"epoch": math.inf}, {})
    folder.add_epoch(EpochRecord(3, math.nan, cost, {"val_rmse": -math.inf, "test_rmse": 0.5}))
    (line,) = (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail) == {
        "epoch": 3,
        "loss": None,
        "val_rmse": None,
        "test_rmse": 0.5,
        "time_ms": {"epoch": None},
        "bytes_received": {},
        "replayed": False,
    }


def npy_files(folder: Path, **arrays: np.ndarray) -> dict[str, Path]:
    paths = {name: folder / f"{name}.npy" for name in arrays}
    for name, array in arrays.items():
        np.save(paths[name], array)
    return paths


def test_predictions_are_written_with_the_output(tmp_path, tmp_path_factory) -> None:
    folder, output = RunFolder(str(tmp_path), ""), np.array([[0.1, 0.9], [3.0, -1.0]], np.float32)
    folder.write_predictions(npy_files(tmp_path_factory.mktemp("rows"), prediction=np.array([1, 0]), logits=output))
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        assert arrays["prediction"].tolist() == [1, 0]
        assert arrays["logits"].dtype == np.float32
    assert not list(tmp_path.glob("*tmp*"))


def test_a_resumed_run_keeps_what_came_before_its_checkpoint(tmp_path, tmp_path_factory) -> None:
    first = RunFolder(str(tmp_path), "seed: 0")
    for epoch in range(1, 6):
        first.add_epoch(EpochRecord(epoch, 1 / epoch, Cost(), None))
    first.write_predictions(npy_files(tmp_path_factory.mktemp("rows"), prediction=np.ones(1)))
    with open(tmp_path / "epochs.jsonl", "a") as file:
        file.write('{"epoch": 2, "lo')  # an interrupted run leaves such a line
    kept = ("checkpoints/epoch_000003/shard", "tensorboard/events.out.tfevents.1.host", "predictions_mine.npz")
    for name in ("record.json", f".record.{'0' * 32}.json", *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    before = (tmp_path / "epochs.jsonl").read_text().splitlines()

    resumed = RunFolder(str(tmp_path), "seed: 1", continue_after=3)
    assert files(tmp_path) == {"config.yaml", "epochs.jsonl", *kept}
    assert (tmp_path / "epochs.jsonl").read_text().splitlines() == before[:3]
    assert (tmp_path / "config.yaml").read_text() == "seed: 1"
    resumed.add_epoch(EpochRecord(4, 0.0, Cost(), None))
    assert [(line["epoch"], line["loss"]) for line in read_epochs(tmp_path)[0]][2:] == [(3, 1 / 3), (4, 0.0)]


def test_a_run_that_ended_before_its_first_checkpoint_begins_again(tmp_path) -> None:
    RunFolder(str(tmp_path), "").add_epoch(EpochRecord(1, 0.5, Cost(), None))
    RunFolder(str(tmp_path), "seed: 1", continue_after=0)
    assert read_epochs(tmp_path) == ([], False)
    (tmp_path / "record.json").touch()  # it has finished, and there is no checkpoint to continue from
    with pytest.raises(ConfigError, match="holds an earlier run"):
        RunFolder(str(tmp_path), "", continue_after=0)


def test_a_record_without_metrics_is_read(tmp_path) -> None:
    values = whole_record()
    del values["metrics"]
    (tmp_path / "record.json").write_text(json.dumps(values))
    assert read_record(tmp_path).metrics == {}


def test_a_record_of_another_version_is_read_as_far_as_it_goes(tmp_path) -> None:
    """Fields that may be null are null where they are missing; fields that nobody knows are dropped."""
    values = whole_record() | {"epoch_time_ms": {"median": 2, "p20": None, "p80": 3.5}, "threads": 2.0, "mood": [1]}
    for missing in ("git_commit", "predicted", "comm_hidden", "ranks"):
        del values[missing]
    (tmp_path / "record.json").write_text(json.dumps(values))
    record = read_record(tmp_path)
    assert (record.git_commit, record.predicted, record.comm_hidden, record.ranks) == (None, None, None, [])
    assert record.epoch_time_ms == {"median": 2, "p20": None, "p80": 3.5} and record.num_nodes == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "record.json cannot be read: train again with overwrite=true, or choose another run_dir .is no JSON"),
        ("[" * 100_000, "record.json cannot be read: train again .*is nested more than 64 levels deep"),
        ("[]", "record.json is not of a training run: train again"),
        (json.dumps(whole_record() | {"num_nodes": "many"}), "num_nodes has a value of another type, so it is damaged"),
        (json.dumps(whole_record() | {"ranks": [1]}), "ranks has a value of another type, so it is damaged"),
        (json.dumps(whole_record() | {"scheme": None}), "record.json has no scheme, so it is damaged, or another vers"),
        (json.dumps({"dataset": "karate"}), "record.json has no num_nodes, so it is damaged, or another version"),
        (json.dumps(whole_record() | {"nnz": 10**300}), "record.json cannot be read: .*a number is beyond all reason"),
    ],
)
def test_a_damaged_record_is_one_line(tmp_path, content: str, message: str) -> None:
    (tmp_path / "record.json").write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_record(tmp_path)
    assert "\n" not in str(caught.value)


def test_numbers_beyond_reason_damage_a_line(tmp_path) -> None:
    for line in ('{"epoch": -1' + "0" * 400 + "}", '{"epoch": 2, "loss": 1' + "0" * 400 + "}", '{"epoch": -1}'):
        (tmp_path / "epochs.jsonl").write_text('{"epoch": 1, "loss": 2.0}\n' + line + "\n")
        assert read_epochs(tmp_path) == ([{"epoch": 1, "loss": 2.0}], True)


def test_a_folder_that_cannot_be_made_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="run_dir=.*file/run cannot be written"):
        RunFolder(str(tmp_path / "file" / "run"), "")
