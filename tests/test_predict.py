"""Predictions of a trained model equal those of its training, on any number of ranks; refusals; memory; the command."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fullgnn.distributed import World
from fullgnn.engine.prediction import read_trained
from fullgnn.engine.row_files import write_rows
from fullgnn.errors import FullGNNError
from fullgnn.graph import Graph
from fullgnn.graph.datasets import karate
from fullgnn.predict import load_request, predict_on, prediction_config, start, trained_run
from fullgnn.schemes import OneAndHalfD, gather
from fullgnn.storage.record import read_record
from tests.commands import run_command, torchrun
from tests.predictions import MACHINE, MakeRanks, metrics_of, predict, train

LAYOUTS = {1: ["scheme=1d"], 4: ["scheme=1.5d", "scheme.replication=2", "partition=metis"]}
"""Overrides by number of ranks."""
EXACT = dict(rtol=0, atol=1e-12)  # float64; the order of the sums differs between the layouts


def refusal(ranks: MakeRanks, *overrides: str) -> str:
    """The user error of a prediction on two ranks, which is one line and the same on both."""
    first, second = ranks(2)(_refusal, MACHINE, *overrides)
    assert first == second and "\n" not in first
    return first


def _refusal(world: World, *overrides: str) -> str:
    try:
        predict_on(world, load_request([*overrides]))
    except FullGNNError as error:
        return str(error)
    raise AssertionError("it was not refused")


def of_training(run_dir: Path) -> dict[str, np.ndarray]:
    with np.load(run_dir / "predictions.npz") as arrays:
        return dict(arrays)


def multi_label_graph(num_features: int) -> Graph:
    rng = np.random.default_rng(3)
    n = 41
    adj = rng.random((n, n)) < 0.1
    features = rng.standard_normal((n, num_features)) if num_features else None
    arcs = np.stack((adj | adj.T).nonzero())
    train, node = rng.random(n) < 0.5, np.arange(n)
    masks = dict(train_mask=train, val_mask=~train & (node % 2 == 0), test_mask=~train & (node % 2 == 1))
    labels = (rng.random((n, 5)) < 0.3).astype(np.int8)
    return Graph.from_edge_index(arcs, features=features, labels=labels, num_nodes=n, **masks)


@pytest.fixture(scope="module")
def karate_run(ranks: MakeRanks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(ranks, tmp_path_factory.mktemp("karate") / "run", "dataset=karate")


@pytest.mark.sample(4)
@pytest.mark.parametrize("num_ranks", LAYOUTS)
def test_the_best_weights_predict_what_the_training_wrote(
    ranks: MakeRanks, karate_run: Path, tmp_path: Path, num_ranks: int
) -> None:
    predicted = predict(ranks, num_ranks, tmp_path, f"checkpoint={karate_run}", *LAYOUTS[num_ranks])
    expected, record = of_training(karate_run), read_record(karate_run)
    assert predicted.keys() == {"predictions", "outputs"}
    assert predicted["outputs"].dtype == np.float64 and predicted["predictions"].dtype == np.int64
    np.testing.assert_allclose(predicted["outputs"], expected["logits"], **EXACT)
    assert np.array_equal(predicted["predictions"], expected["prediction"])
    about = metrics_of(tmp_path)
    assert about == {
        "checkpoint": str(karate_run / "checkpoints" / "epoch_000009"),
        "weights": "best",
        "epoch": record.best_epoch,
        "dataset": "karate",
        "metrics": {f"{split}_accuracy": getattr(record, f"{split}_accuracy") for split in ("train", "val", "test")},
    }
    assert {file.name for file in tmp_path.iterdir()} == {"predictions.npy", "outputs.npy", "metrics.json"}


def test_the_last_weights_are_those_of_the_epoch_of_the_checkpoint(
    ranks: MakeRanks, karate_run: Path, tmp_path: Path
) -> None:
    given = [f"checkpoint={karate_run / 'checkpoints' / 'epoch_000008'}", "weights=last"]
    alone = predict(ranks, 1, tmp_path / "1", *given)
    four = predict(ranks, 4, tmp_path / "4", *given, *LAYOUTS[4])
    np.testing.assert_allclose(alone["outputs"], four["outputs"], **EXACT)
    assert metrics_of(tmp_path / "1")["epoch"] == 8
    assert metrics_of(tmp_path / "1")["metrics"] == metrics_of(tmp_path / "4")["metrics"]
    last = predict(ranks, 1, tmp_path / "last", f"checkpoint={karate_run}", "weights=last")
    assert metrics_of(tmp_path / "last")["metrics"]["test_accuracy"] == read_record(karate_run).final_test_accuracy
    assert np.abs(last["outputs"] - alone["outputs"]).max() > 1e-6


@pytest.mark.sample(2)
@pytest.mark.parametrize("num_ranks", LAYOUTS)
def test_embeddings_are_the_output_of_a_layer(
    ranks: MakeRanks, karate_run: Path, tmp_path: Path, num_ranks: int
) -> None:
    given = [f"checkpoint={karate_run}", *LAYOUTS[num_ranks]]
    embedded = predict(ranks, num_ranks, tmp_path, *given, "layer=0")
    assert embedded.keys() == {"embeddings"} and not (tmp_path / "metrics.json").exists()
    (expected,) = ranks(1)(_first_layer, f"checkpoint={karate_run}", MACHINE)
    np.testing.assert_allclose(embedded["embeddings"], expected, **EXACT)
    assert embedded["embeddings"].shape == (34, 16) and (embedded["embeddings"] > 0).any()
    by_name = predict(ranks, num_ranks, tmp_path / "name", *given, "layer=layers.0")
    assert np.array_equal(by_name["embeddings"], embedded["embeddings"])


@torch.no_grad()
def _first_layer(world: World, *overrides: str) -> np.ndarray:
    """The first layer of the model, called here, in original order."""
    request = load_request([*overrides])
    trained = read_trained(request.checkpoint, "best")
    cfg = prediction_config(request, trained)
    job, _ = trained_run(world, cfg, trained)
    job.model.eval()
    rows = job.model.layers[0](job.graph.features, job.graph.block)
    out = np.empty(rows.shape)
    out[job.graph.block.source_id.numpy()] = rows.numpy()
    return out


@pytest.fixture(scope="module")
def several_labels_run(ranks: MakeRanks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    multi_label_graph(3).save(folder / "graph.npz")
    return train(ranks, folder / "run", "dataset=npz", f"dataset.path={folder / 'graph.npz'}")


@pytest.fixture(scope="module")
def vectors_run(ranks: MakeRanks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without features, whose model has trainable vectors of the nodes."""
    folder = tmp_path_factory.mktemp("vectors")
    multi_label_graph(0).save(folder / "graph.npz")
    given = ["dataset=npz", f"dataset.path={folder / 'graph.npz'}", "model.embedding_channels=4"]
    return train(ranks, folder / "run", *given)


@pytest.fixture(scope="module")
def regression_run(ranks: MakeRanks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, graph = tmp_path_factory.mktemp("regression"), multi_label_graph(3)
    replace(graph, labels=graph.labels - 0.25 * graph.features[:, :1]).save(folder / "graph.npz")
    given = ["dataset=npz", f"dataset.path={folder / 'graph.npz'}", "task=node_regression", "model=gat"]
    return train(ranks, folder / "run", *given)


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", ["several_labels_run", "vectors_run", "regression_run"])
def test_several_labels_vectors_of_nodes_and_regression(
    ranks: MakeRanks, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    run = request.getfixturevalue(kind)
    expected, record = of_training(run), read_record(run)
    for num_ranks, overrides in LAYOUTS.items():
        out = tmp_path / str(num_ranks)
        predicted = predict(ranks, num_ranks, out, f"checkpoint={run}", *overrides)
        assert predicted["predictions"].shape == (41, 5)
        assert predicted["predictions"].dtype == (float if kind == "regression_run" else bool)
        np.testing.assert_allclose(predicted["outputs"], expected["logits"], **EXACT)
        np.testing.assert_allclose(predicted["predictions"], expected["prediction"], **EXACT)
        assert metrics_of(out)["epoch"] == record.best_epoch
        best = {key: record.metrics[key] for key in metrics_of(out)["metrics"]}
        assert len(best) == 9 and metrics_of(out)["metrics"] == pytest.approx(best, rel=1e-12)


def test_vectors_of_nodes_need_the_graph_of_the_training(ranks: MakeRanks, vectors_run: Path, tmp_path: Path) -> None:
    graph = multi_label_graph(0)
    replace(graph, labels=1 - graph.labels).save(tmp_path / "other.npz")
    given = [f"checkpoint={vectors_run}", f"dataset.path={tmp_path / 'other.npz'}", f"out={tmp_path / 'out'}"]
    assert refusal(ranks, *given).startswith("checkpoint: the graph is another one (its edges, features, labels")
    assert not (tmp_path / "out").exists()


@pytest.mark.sample(4)
def test_a_graph_without_labels_has_predictions_and_no_metrics(
    ranks: MakeRanks, karate_run: Path, tmp_path: Path
) -> None:
    club = karate.load(train_per_class=4, num_val=8, seed=0)
    bare = Graph(club.indptr, club.indices, club.features, weight=club.weight, name="bare")
    bare.permute(np.arange(34)[::-1]).save(tmp_path / "bare.npz")
    given = [f"checkpoint={karate_run}", "dataset=npz", f"dataset.path={tmp_path / 'bare.npz'}"]
    expected = of_training(karate_run)["logits"][::-1]
    out = tmp_path / "out"
    out.mkdir()
    (out / "metrics.json").write_text("of an earlier prediction")
    (out / "notes.txt").write_text("of the user")
    for num_ranks, overrides in LAYOUTS.items():
        predicted = predict(ranks, num_ranks, out, *given, *overrides, "overwrite=true")
        np.testing.assert_allclose(predicted["outputs"], expected, **EXACT)
        assert {file.name for file in out.iterdir()} == {"predictions.npy", "outputs.npy", "notes.txt"}


def test_labels_of_another_kind_give_no_metrics(ranks: MakeRanks, karate_run: Path, tmp_path: Path) -> None:
    club = karate.load(train_per_class=4, num_val=8, seed=0)
    replace(club, labels=np.eye(3, dtype=np.int8)[np.arange(34) % 3], num_classes=3).save(tmp_path / "several.npz")
    replace(club, labels=np.arange(34) % 3, num_classes=3).save(tmp_path / "more.npz")
    for name in ("several", "more"):
        given = [f"checkpoint={karate_run}", "dataset=npz", f"dataset.path={tmp_path / name}.npz"]
        assert predict(ranks, 2, tmp_path / name, *given).keys() == {"predictions", "outputs"}
        assert not (tmp_path / name / "metrics.json").exists()


def test_refusals_are_one_line_on_every_rank(ranks: MakeRanks, karate_run: Path, tmp_path: Path) -> None:
    checkpoint, out = f"checkpoint={karate_run}", f"out={tmp_path / 'out'}"
    multi_label_graph(3).save(tmp_path / "three.npz")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "outputs.npy").write_text("mine")
    (tmp_path / "file").write_text("")
    expected = {
        (): "checkpoint has no value: give checkpoint=...",
        (f"checkpoint={tmp_path}",): f"{tmp_path} holds no checkpoint: give a run folder",
        (checkpoint, "model.hidden_channels=8"): "model.hidden_channels cannot be given: the checkpoint fixes model",
        (checkpoint, "task=node_regression"): "task cannot be given: the checkpoint fixes task",
        (checkpoint, "runtime.dtype=float32"): "runtime.dtype cannot be given: the checkpoint fixes runtime.dtype",
        (checkpoint, "seed=1"): "seed cannot be given: the checkpoint fixes seed",
        (checkpoint, "train.epochs=3"): "train.epochs is a key of training",
        (checkpoint, "wieghts=last"): "unknown key wieghts: did you mean weights?",
        (checkpoint, "weights=first"): "weights=first is not known: choose one of best, last",
        (checkpoint, "dataset.foo=3"): "unknown configuration key dataset.foo",
        (checkpoint, "dataset=npz", f"dataset.path={tmp_path / 'four.npz'}"): f"no file {tmp_path / 'four.npz'}: set",
        (checkpoint, "dataset=npz", f"dataset.path={tmp_path / 'three.npz'}"): (
            "the dataset has 3 features a node, and the model was trained on 34: choose"
        ),
        (checkpoint, f"out={tmp_path / 'full'}"): f"out={tmp_path / 'full'} holds outputs.npy already",
        (checkpoint, f"out={tmp_path / 'file' / 'out'}"): f"out={tmp_path / 'file' / 'out'} cannot be created",
        (checkpoint, "layer=layers.7"): "layer=layers.7 is not a part of the model: choose one of dropout, layers, ",
        (checkpoint, "layer=layers"): "layer=layers is not called by itself when the model predicts",
    }
    for overrides, message in expected.items():
        given = overrides if any(word.startswith("out=") for word in overrides) else (*overrides, out)
        assert refusal(ranks, *given).startswith(message), overrides
    assert (tmp_path / "full" / "outputs.npy").read_text() == "mine"
    assert not (tmp_path / "out").exists()


def test_a_missing_file_of_the_dataset_is_found_before_ranks_start(karate_run: Path, tmp_path: Path) -> None:
    given = [f"checkpoint={karate_run}", "dataset=npz", f"dataset.path={tmp_path / 'missing.npz'}", f"out={tmp_path}"]
    with (
        mock.patch("fullgnn.predict.fork_workers", side_effect=AssertionError),
        mock.patch("fullgnn.predict.launch_workers", side_effect=AssertionError),
        mock.patch("torch.set_num_threads"),
        pytest.raises(FullGNNError, match="no file .*missing.npz: set dataset.path"),
    ):
        start(load_request(given), given)


class _Shapes(TorchDispatchMode):
    """Collects the shapes of all tensors that operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(value, torch.Tensor):
                self.found.add(tuple(value.shape))
        return result


CHECKS_SIZES = """
import sys
from fullgnn.config import conf_dir
from fullgnn.engine.prediction import check_size, read_trained
from fullgnn.errors import DataError
from tests.cases import config

trained = read_trained(sys.argv[1], "best")
for file in (conf_dir() / "model").glob("*.yaml"):
    if file.stem != "base":
        task = "link_prediction" if file.stem == "lightgcn" else "node_classification"
        node = config(f"model={file.stem}", f"task={task}").model
        width = "embedding_channels" if file.stem == "lightgcn" else "hidden_channels"
        try:
            check_size(trained, node | ({width: 10**5} if width in node else {}))
            print(file.stem, "fits")
        except DataError as error:
            print(file.stem, "is refused")
print("compiler:", "torch._dynamo" in sys.modules)
"""


@pytest.mark.sample(2)
def test_sizes_are_checked_without_memory_and_without_the_compiler_of_torch(karate_run: Path, tmp_path: Path) -> None:
    """torch would take seconds to import its compiler, and say at the end of the run that a backend is missing."""
    done = run_command([sys.executable, "-c", CHECKS_SIZES], str(karate_run), cwd=tmp_path)
    lines = done.output.splitlines()
    assert done.status == 0 and lines[-1] == "compiler: False", done.output
    assert sorted(line.split()[0] for line in lines if line.endswith("fits")) == ["lightgcn", "sgc"], done.output
    assert len(lines) > 10


@pytest.mark.sample(4)
def test_no_rank_holds_the_results_of_all_nodes(ranks: MakeRanks, several_labels_run: Path, tmp_path: Path) -> None:
    """41 nodes, 5 labels, a hidden layer of 16: no tensor has all rows, and rows arrive from one rank at a time."""
    for layer in ([], ["layer=0"]):
        given = [f"checkpoint={several_labels_run}", f"out={tmp_path}", MACHINE, *layer]
        for shapes, received in ranks(4)(_held, *given):
            assert (11, 16) in shapes or (10, 16) in shapes  # the rows of a rank are seen
            assert not {(41, 5), (41, 16)} & shapes
            assert max(received, default=0) <= 11
        assert np.load(tmp_path / ("embeddings.npy" if layer else "outputs.npy")).shape == (41, 16 if layer else 5)


def _held(world: World, *overrides: str) -> tuple[set[tuple[int, ...]], list[int]]:
    """The shapes of all tensors of a prediction, and the number of rows in each part that arrived."""
    shapes, received = _Shapes(), list[int]()
    receive = gather.receive_arrays

    def spy(source: int) -> dict[str, np.ndarray]:
        arrays = receive(source)
        if gather._LAST in arrays:  # a part of a result
            received.append(len(arrays["node_id"]))
        return arrays

    with (
        shapes,
        mock.patch.object(gather, "receive_arrays", spy),
        mock.patch.object(OneAndHalfD, "gather", side_effect=AssertionError("gathers all rows")),
    ):
        predict_on(world, load_request([*overrides]))
    return shapes.found, received


def test_rows_are_written_by_their_original_ids_in_small_parts(ranks: MakeRanks, tmp_path: Path) -> None:
    sizes = ranks(3)(_write, tmp_path)
    ids = np.arange(1000)
    assert np.array_equal(np.load(tmp_path / "a.npy"), ids[:, None] + np.array([0.0, 0.5]))
    assert np.array_equal(np.load(tmp_path / "b.npy", mmap_mode="r"), ids % 7)
    assert sizes[0] and max(sizes[0]) <= 10
    assert {file.name for file in tmp_path.iterdir()} == {"a.npy", "b.npy"}


def _held_by(world: World, node_id: torch.Tensor) -> gather.GathersRows:
    held = gather.GathersRows()
    held.world, held.node_id = world, node_id
    return held


def _write(world: World, folder: Path) -> list[int]:
    sizes = []
    node_id = torch.arange(world.rank, 1000, world.size)

    def gather_parts(rows: dict[str, torch.Tensor]) -> Any:
        for part in _held_by(world, node_id).gather_parts(rows):
            sizes.append(len(part["node_id"]))
            yield part

    rows = {"a": node_id[:, None] + torch.tensor([0.0, 0.5]).double(), "b": node_id % 7}
    with mock.patch.object(gather, "PART_BYTES", 10 * 32):
        write_rows(SimpleNamespace(gather_parts=gather_parts), folder, rows, 1000)
    return sizes


def test_a_full_disk_is_a_user_error_on_every_rank_and_leaves_no_file(ranks: MakeRanks, tmp_path: Path) -> None:
    messages = ranks(2)(_on_a_full_disk, tmp_path)
    assert messages == [f"out={tmp_path} cannot be written (No space left on device): choose another folder"] * 2
    assert list(tmp_path.iterdir()) == []


def _on_a_full_disk(world: World, folder: Path) -> str:
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    scheme: Any = _held_by(world, torch.arange(world.rank, 10, world.size))
    with mock.patch("os.posix_fallocate", full), pytest.raises(FullGNNError) as caught:
        write_rows(scheme, folder, {"a": torch.zeros(5, 2)}, 10)
    return str(caught.value)


PREDICT = [sys.executable, "-m", "fullgnn.predict"]


def test_the_command_starts_its_ranks(karate_run: Path, tmp_path: Path) -> None:
    arguments = [f"checkpoint={karate_run}", "runtime.nproc=2", MACHINE, "out=own"]
    done = run_command(PREDICT, *arguments, cwd=tmp_path)
    assert done.status == 0 and not done.errors, done.output
    assert "val_accuracy" in done.output and str(tmp_path / "own" / "outputs.npy") in done.output
    again = run_command(PREDICT, *arguments, cwd=tmp_path)
    assert again.status == 1 and len(again.errors) == 1 and "overwrite=true" in again.errors[0], again.output
    shown = run_command(PREDICT, "--help", cwd=tmp_path)
    assert shown.status == 0 and "weights: best" in shown.output


@pytest.mark.sample(6)
def test_the_command_runs_under_torchrun_as_on_its_own_ranks(karate_run: Path, tmp_path: Path) -> None:
    for out, command in {"own": [*PREDICT, "runtime.nproc=2"], "under": [*torchrun(2), *PREDICT[1:]]}.items():
        done = run_command(command, f"checkpoint={karate_run}", MACHINE, f"out={out}", cwd=tmp_path)
        assert done.status == 0 and not done.errors, done.output
    assert np.array_equal(np.load(tmp_path / "own" / "outputs.npy"), np.load(tmp_path / "under" / "outputs.npy"))
