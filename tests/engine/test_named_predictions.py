"""Predictions with the names of nodes and classes: the same on any number of ranks, in any order, from a cache."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.metrics import confusion_matrix

from fullgnn.distributed import World
from fullgnn.engine import kept_names, prediction_table
from fullgnn.engine.prediction_table import write_table
from fullgnn.graph import Graph
from fullgnn.graph.datasets import karate
from fullgnn.predict import load_request, predict_on
from fullgnn.storage.record import RunRecord, read_record
from fullgnn.train import run_on
from fullgnn.train_minibatch import run_on as run_sampled_on
from tests.cases import config

MakeRanks = Callable[[int], Any]
KEYS = ("train.epochs=3", "train.save_predictions=true", "runtime.device=cpu", "runtime.dtype=float64", "dataset=npz")
LAYOUTS = {
    1: ["scheme=1d", "partition=contiguous", "reorder=none"],
    2: ["scheme=1d", "partition=random"],
    4: ["scheme=1.5d", "scheme.replication=2", "partition=metis"],
}
CLASSES = ("old, \u00e4", "new")
NAMES = [f"member {'x' * (node % 7)}{node}\u00e9" for node in range(34)]


def saved(path: Path, names: Any, class_names: Any = CLASSES) -> str:
    graph = karate.load(train_per_class=4, num_val=8, seed=0)
    keys = ("features", "labels", "train_mask", "val_mask", "test_mask")
    fields = {key: getattr(graph, key) for key in keys}
    Graph.from_scipy(graph.adjacency(), **fields, node_names=names, class_names=class_names).save(path)
    return f"dataset.path={path}"


def _train(world: World, small: bool, *overrides: str) -> None:
    if small:  # as a large graph, of which only some rows are in memory
        kept_names.IN_MEMORY, kept_names.TEXTS_AT_ONCE, prediction_table.ROWS_AT_ONCE = 0, 5, 10
    try:
        run_on(world, config(*overrides))
    finally:
        kept_names.IN_MEMORY, kept_names.TEXTS_AT_ONCE, prediction_table.ROWS_AT_ONCE = 1 << 24, 1 << 16, 1 << 17


def _predict(world: World, *overrides: str) -> None:
    predict_on(world, load_request([*overrides]))


def check_table(table: pandas.DataFrame, names: Any, prediction: np.ndarray, logits: np.ndarray) -> None:
    assert table["node"].tolist() == list(names)
    assert table["prediction"].tolist() == [CLASSES[label] for label in prediction]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(table["probability"], shares.max(axis=1), rtol=1e-12)


def check_confusion(record: RunRecord, prediction: np.ndarray) -> None:
    graph = karate.load(train_per_class=4, num_val=8, seed=0)
    given, predicted = (np.array(CLASSES)[of] for of in (graph.labels, prediction))
    assert record.confusion is not None and record.confusion_classes == list(CLASSES)
    for split, matrix in record.confusion.items():
        mask = getattr(graph, f"{split}_mask")
        assert matrix == confusion_matrix(given[mask], predicted[mask], labels=record.confusion_classes).tolist()


@pytest.mark.sample(12)
@pytest.mark.parametrize("num_ranks", LAYOUTS)
@pytest.mark.parametrize("names", [NAMES, [7 * node - 2**40 for node in range(34)]], ids=["texts", "integers"])
def test_training_and_predictions_write_the_names(
    ranks: MakeRanks, tmp_path: Path, num_ranks: int, names: list[Any]
) -> None:
    path = saved(tmp_path / "g.npz", names)
    metrics = "task.metrics=[accuracy,confusion_matrix]"
    given = [*KEYS, metrics, *LAYOUTS[num_ranks], path, f"runtime.cache_dir={tmp_path / 'cache'}"]
    for run in ("first", "again"):  # the second one reads the prepared graph from the cache
        ranks(num_ranks)(_train, run == "again", *given, f"run_dir={tmp_path / run}", "train.checkpoint_every=3")
        with np.load(tmp_path / run / "predictions.npz") as arrays:
            check_table(pandas.read_parquet(tmp_path / run / "predictions.parquet"), names, *arrays.values())
            check_confusion(read_record(tmp_path / run), arrays["prediction"])
    assert json.loads((tmp_path / "again" / "record.json").read_text())["load_time_s"] == 0
    out, request = tmp_path / "out", [f"checkpoint={tmp_path / 'first'}", "runtime.device=cpu"]
    ranks(num_ranks)(_predict, *request, f"out={out}", "prediction_table=csv")
    rows = np.load(out / "predictions.npy"), np.load(out / "outputs.npy")
    check_table(pandas.read_csv(out / "predictions.csv"), names, *rows)
    assert not (out / "predictions.parquet").exists()
    ranks(num_ranks)(_predict, *request, f"out={out}", "overwrite=true")
    check_table(pandas.read_parquet(out / "predictions.parquet"), names, *rows)
    assert not (out / "predictions.csv").exists()


def test_a_graph_without_names_has_a_table_where_it_is_asked_for(ranks: MakeRanks, tmp_path: Path) -> None:
    path = saved(tmp_path / "g.npz", None, None)
    for choice, written in (("auto", set()), ("csv", {"predictions.csv"}), ("never", set())):
        run = tmp_path / choice
        ranks(1)(_train, False, *KEYS, path, f"run_dir={run}", f"train.prediction_table={choice}")
        assert {file.name for file in run.glob("predictions.*")} == {"predictions.npz", *written}
    with np.load(tmp_path / "csv" / "predictions.npz") as arrays:
        table = pandas.read_csv(tmp_path / "csv" / "predictions.csv")
        assert table["node"].tolist() == list(range(34))
        assert table["prediction"].tolist() == arrays["prediction"].tolist()
    ranks(1)(_train, False, *KEYS, path, f"run_dir={tmp_path / 'never'}", "overwrite=true")
    assert not (tmp_path / "never" / "predictions.csv").exists()


def test_nodes_without_labels_get_the_class_names_of_the_training(ranks: MakeRanks, tmp_path: Path) -> None:
    trained, graph = saved(tmp_path / "g.npz", NAMES), karate.load(train_per_class=4, num_val=8, seed=0)
    Graph.from_scipy(graph.adjacency(), features=graph.features, node_names=NAMES[::-1]).save(tmp_path / "new.npz")
    ranks(1)(_train, False, *KEYS, trained, f"run_dir={tmp_path / 'run'}", "train.checkpoint_every=3")
    new = ["dataset=npz", f"dataset.path={tmp_path / 'new.npz'}", "runtime.device=cpu"]
    ranks(2)(_predict, f"checkpoint={tmp_path / 'run'}", *new, f"out={tmp_path / 'out'}")
    rows = np.load(tmp_path / "out" / "predictions.npy"), np.load(tmp_path / "out" / "outputs.npy")
    check_table(pandas.read_parquet(tmp_path / "out" / "predictions.parquet"), NAMES[::-1], *rows)


def _train_sampled(world: World, *overrides: str) -> None:
    run_sampled_on(world, config(*overrides, name="minibatch"))


def test_sampled_training_writes_the_names(ranks: MakeRanks, tmp_path: Path) -> None:
    path = saved(tmp_path / "g.npz", NAMES)
    ranks(2)(_train_sampled, *KEYS, path, f"run_dir={tmp_path / 'run'}", "loader.batch_size=4")
    with np.load(tmp_path / "run" / "predictions.npz") as arrays:
        check_table(pandas.read_parquet(tmp_path / "run" / "predictions.parquet"), NAMES, *arrays.values())


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_several_labels_and_values(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    output = rng.standard_normal((9, 2))
    read = pandas.read_parquet if suffix == "parquet" else pandas.read_csv
    write_table(tmp_path / f"t.{suffix}", None, ("p", "q"), output > 0, output)
    table = read(tmp_path / f"t.{suffix}")
    assert list(table) == ["node", "prediction_p", "prediction_q"]
    np.testing.assert_array_equal(table[["prediction_p", "prediction_q"]].to_numpy(bool), output > 0)
    write_table(tmp_path / f"t.{suffix}", None, None, output, output)
    np.testing.assert_allclose(read(tmp_path / f"t.{suffix}")[["prediction_0", "prediction_1"]], output, rtol=1e-15)
    write_table(tmp_path / f"t.{suffix}", None, None, output[:, :1], output[:, :1])
    np.testing.assert_allclose(read(tmp_path / f"t.{suffix}")["prediction"], output[:, 0], rtol=1e-15)
    nan = np.where(np.arange(9)[:, None] == 3, np.nan, output)
    write_table(tmp_path / f"t.{suffix}", None, CLASSES, np.where(np.arange(9) == 3, -1, output.argmax(axis=1)), nan)
    table = read(tmp_path / f"t.{suffix}")
    assert table["prediction"].isna().tolist() == table["probability"].isna().tolist() == [n == 3 for n in range(9)]
