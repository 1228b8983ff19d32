"""The files of a run folder."""

import json
import math

import numpy as np
import pytest

from fullgnn.errors import ConfigError
from fullgnn.storage.record import RunFolder
from fullgnn.telemetry.epoch import EpochRecord
from fullgnn.telemetry.meter import Cost


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


def test_predictions_are_written_with_the_output(tmp_path) -> None:
    folder = RunFolder(str(tmp_path), "")
    folder.write_predictions(np.array([1, 0]), np.array([[0.1, 0.9], [3.0, -1.0]], np.float32))
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        assert arrays["prediction"].tolist() == [1, 0]
        assert arrays["logits"].dtype == np.float32
    assert not list(tmp_path.glob("*tmp*"))


def test_a_new_run_begins_with_a_folder_without_results(tmp_path) -> None:
    folder = RunFolder(str(tmp_path), "seed: 0")
    folder.write_structure({"block_nnz": np.ones((1, 1), np.int64)})
    folder.write_predictions(np.ones(1), np.ones((1, 2)))
    (tmp_path / "record.json").touch()
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "events.out.tfevents.1.host").touch()
    (tmp_path / "notes.txt").touch()
    RunFolder(str(tmp_path), "seed: 1")
    assert {path.name for path in tmp_path.rglob("*")} == {"config.yaml", "epochs.jsonl", "tensorboard", "notes.txt"}
    assert (tmp_path / "config.yaml").read_text() == "seed: 1"


def test_a_folder_that_cannot_be_made_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="run_dir=.*file/run cannot be written"):
        RunFolder(str(tmp_path / "file" / "run"), "")
