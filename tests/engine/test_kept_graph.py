"""The graph of train_graph stays in the run folder, where predictions and resumed runs find it."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from fullgnn.api import train_graph
from fullgnn.errors import ConfigError, FullGNNError
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.datasets import karate
from fullgnn.storage.folder import GRAPH, has_own_graph
from tests.calls_here import CPU, curve
from tests.commands import OWN, run_command

PREDICT = [sys.executable, "-m", "fullgnn.predict"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests run in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def club(seed: int = 0) -> Graph:
    return karate.load(train_per_class=4, num_val=8, seed=seed)


def dataset_in(run_dir: str) -> dict:
    return yaml.safe_load(Path(run_dir, "config.yaml").read_text())["dataset"]


@pytest.mark.sample(4)
@pytest.mark.parametrize("cache", [{}, {"runtime.cache_dir": "cache"}])
def test_a_run_can_be_predicted_with_and_gone_on_with(folder: Path, cache: dict[str, str]) -> None:
    keys = {"train.checkpoint_every": 3, "train.save_predictions": True, **cache}
    record = train_graph(club(), CPU, keys, run_dir="run")
    assert record.run_dir == str(folder / "run") and dataset_in("run")["path"] == f"{record.run_dir}/{GRAPH}"
    kept = load_dataset(dataset_in("run"))
    for name in ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(club(), name))
    done = run_command(PREDICT, f"checkpoint={record.run_dir}", "runtime.device=cpu", cwd=folder)
    assert done.status == 0, done.output
    predicted = np.load("run/predictions/predictions.npy")
    np.testing.assert_array_equal(predicted, np.load("run/predictions.npz")["prediction"])

    further = {"runtime": {"device": "cpu"}, "train": {"epochs": 9}}
    again = train_graph(club(), further, keys, run_dir="run", resume="auto")
    assert again.resumed_after == 6 and dataset_in("run")["path"] == f"{record.run_dir}/{GRAPH}"
    train_graph(club(), further, keys, run_dir="whole")
    assert curve("run") == curve("whole") and len(curve("run")) == 9
    with pytest.raises(ConfigError, match="the graph is another one"):
        train_graph(club(seed=1), further, keys, {"train.epochs": 12}, run_dir="run", resume="auto")
    assert curve("run") == curve("whole") and (folder / "run" / GRAPH).is_file()
    options = "dataset=npz", f"dataset.path=run/{GRAPH}", "dataset.name=karate", "train.epochs=12", "runtime.nproc=1"
    more = [f"{key}={value}".replace("True", "true") for key, value in keys.items()]
    done = run_command(OWN, *options, *more, "runtime.device=cpu", "run_dir=run", "resume=auto", cwd=folder)
    assert done.status == 0 and len(curve("run")) == 12, done.output


def test_a_run_that_fails_before_its_training_leaves_nothing(folder: Path) -> None:
    with pytest.raises(FullGNNError):
        train_graph(club(), CPU, {"task.class_weight": [1.0, 2.0, 3.0]}, run_dir="run")
    assert not (folder / "run").exists()
    train_graph(club(), CPU, run_dir="run")
    before = {file.name: file.read_bytes() for file in (folder / "run").iterdir()}
    with pytest.raises(FullGNNError):
        train_graph(club(seed=1), CPU, {"task.class_weight": [1.0, 2.0, 3.0]}, run_dir="run", overwrite=True)
    assert {file.name: file.read_bytes() for file in (folder / "run").iterdir()} == before


def test_another_run_in_the_folder_replaces_the_graph_of_the_run_alone(folder: Path) -> None:
    train_graph(club(), CPU, run_dir="run")
    with pytest.raises(ConfigError, match=rf"holds an earlier run \(config.yaml, .*{GRAPH}"):
        train_graph(club(), CPU, run_dir="run")
    (folder / "run" / f".graph.{'0' * 32}.npz").touch()  # of a run that was killed
    train_graph(club(seed=1), CPU, run_dir="run", overwrite=True)
    np.testing.assert_array_equal(load_dataset(dataset_in("run")).train_mask, club(seed=1).train_mask)
    assert set(os.listdir("run")) == {"config.yaml", "epochs.jsonl", "record.json", GRAPH}

    options = "train.epochs=2", "runtime.nproc=1", "runtime.device=cpu", "run_dir=run", "overwrite=true"
    done = run_command(OWN, "dataset=npz", f"dataset.path=run/{GRAPH}", *options, cwd=folder)
    assert done.status == 0 and len(curve("run")) == 2, done.output  # its dataset is not removed
    assert (folder / "run" / GRAPH).is_file() and not has_own_graph(folder / "run")
    train_graph(club(), CPU, run_dir="other")
    done = run_command(OWN, "dataset=karate", *options[:-2], "run_dir=other", "overwrite=true", cwd=folder)
    assert done.status == 0 and not (folder / "other" / GRAPH).exists(), done.output


def test_a_file_of_the_user_with_that_name_stays(folder: Path) -> None:
    (folder / "run").mkdir()
    club().save(folder / "run" / GRAPH)
    content = (folder / "run" / GRAPH).read_bytes()
    options = "dataset=karate", "train.epochs=2", "runtime.nproc=1", "runtime.device=cpu", "run_dir=run"
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match=f"run_dir=.* holds a {GRAPH} that train_graph has not written"):
            train_graph(club(seed=1), CPU, run_dir="run", overwrite=overwrite)
    for overwrite in ("false", "true"):
        done = run_command(OWN, *options, f"overwrite={overwrite}", cwd=folder)
        assert done.status == 0 and (folder / "run" / GRAPH).read_bytes() == content, done.output
