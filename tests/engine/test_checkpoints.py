"""Runs that go on from a checkpoint: equal to the bit on the same ranks, and equal on any other layout."""

import dataclasses
import json
import logging
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import World
from fullgnn.engine import checkpoints as engine
from fullgnn.errors import ConfigError, DataError, FullGNNError
from fullgnn.graph import Graph
from fullgnn.schemes import gather
from fullgnn.storage import checkpoint as files
from fullgnn.storage.folder import checkpoints, place_of
from fullgnn.storage.record import RunRecord
from fullgnn.train import run_on
from tests.cases import config, dense_graph, layout_overrides
from tests.storage.records import seal

EPOCHS, EVERY = 20, 2

RECIPES = {
    "adam": [],
    "sgd": ["optimizer=sgd", "optimizer.momentum=0.9", "optimizer.lr=0.1"],
    "schedule": ["optimizer=adamw", "schedule=cosine", "schedule.warmup_epochs=5", "train.clip_norm=0.5"],
    "embedding": ["model.embedding_channels=5", "train.clip_norm=0.5"],
    "embedding, sgd": ["model.embedding_channels=5", "optimizer=sgd", "optimizer.momentum=0.9"],
}


@pytest.fixture(scope="module", autouse=True)
def graph_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "graph.npz"
    graph_of("directed").save(path)
    return path


def graph_of(kind: str) -> Graph:
    graph = dense_graph(kind).graph()
    return dataclasses.replace(graph, test_mask=~graph.train_mask & ~graph.val_mask)


def case(path: Path, run_dir: Path, *overrides: str) -> Config:
    cfg = config(
        "dataset=npz", f"dataset.path={path}", "runtime.dtype=float64", "runtime.threads=1", "seed=4",
        "model.dropout=0.3", f"train.epochs={EPOCHS}", "train.eval_every=3", *overrides,
    )  # fmt: skip
    cfg.run_dir = str(run_dir)
    return cfg


def run(world: World, cfg: Config) -> dict[str, Any]:
    """What a run leaves: its record, its curve, and the last state of the model and the optimizer, rows included."""
    record = run_on(world, cfg)
    return {"record": record} | (left(Path(cfg.run_dir)) if world.rank == 0 else {})


def left(run_dir: Path) -> dict[str, Any]:
    last = checkpoints(run_dir)[-1]
    state = files.read(last, files.STATE)["state"]
    rows = [{key: part[key] for key in part if key != "format"} for part in files.read_rows(last, files.STATE)]
    order = torch.cat([part["node_id"] for part in rows]).argsort() if rows else None
    named = {key: torch.cat([part[key] for part in rows])[order] for key in rows[0]} if rows else {}
    best = files.read(last, files.BEST)["best"]
    tensors = {**flat(state["model"]), **flat(state["optimizer"]["state"]), **named, **flat(best["model"])}
    lines = [json.loads(line) for line in (run_dir / "epochs.jsonl").read_text().splitlines()]
    curve = [{key: value for key, value in line.items() if key not in ("time_ms", "bytes_received")} for line in lines]
    return {"tensors": tensors, "curve": curve, "epoch": state["epoch"]}


def flat(tree: dict[Any, Any], prefix: str = "") -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for key, value in tree.items():
        tensors |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return {key: value for key, value in tensors.items() if isinstance(value, torch.Tensor)}


def metrics_of(record: RunRecord) -> tuple[Any, ...]:
    return record.best_epoch, record.metrics, record.final_loss, record.epochs


@pytest.mark.sample(8)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_checkpoint_goes_on_to_the_same_bits(
    ranks, tmp_path: Path, graph_file: Path, recipe: str, every_case: bool
) -> None:
    """On the same ranks, after any of ten checkpoints, in a folder of its own."""
    keep = [f"train.checkpoint_every={EVERY}", "train.keep_checkpoints=100", "scheme=1d", *RECIPES[recipe]]
    whole = ranks(2)(run, case(graph_file, tmp_path / "whole", *keep))[0]
    saved = checkpoints(tmp_path / "whole")
    wanted = [(epoch, 0) for epoch in range(EVERY, EPOCHS + 1, EVERY)]
    assert [place_of(checkpoint) for checkpoint in saved] == wanted and len(saved) == 10
    for checkpoint in saved[: -1 : 1 if every_case else 3]:
        name = checkpoint.name
        again = ranks(2)(run, case(graph_file, tmp_path / name, *keep, f"resume={checkpoint}"))[0]
        assert again["curve"] == whole["curve"], name
        assert again["record"].resumed_after == place_of(checkpoint)[0]
        assert metrics_of(again["record"]) == metrics_of(whole["record"]), name
        assert again["tensors"].keys() == whole["tensors"].keys()
        for key, tensor in whole["tensors"].items():
            assert torch.equal(again["tensors"][key], tensor), (name, key)


OTHERS = [
    (1, 1, ["scheme=1d"]),
    (3, 1, ["scheme=1d", "reorder=shuffle", "partition=random"]),
    (4, 2, ["partition=metis", "reorder=rcm"]),
    (4, 2, ["scheme.split_rows=false"]),
]
"""Processes, replication, and further overrides."""


@pytest.mark.sample(8)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_goes_on_on_any_layout(ranks, tmp_path: Path, graph_file: Path, recipe: str, monkeypatch) -> None:
    """From p=2 ``1d`` to p=4 r=2 with METIS, among others; the state travels in many parts."""
    keys = [f"train.checkpoint_every={EPOCHS // 2}", *RECIPES[recipe]]
    whole = ranks(2)(run_in_parts, case(graph_file, tmp_path / "whole", "scheme=1d", *keys))[0]
    for number, (world_size, replication, overrides) in enumerate(OTHERS):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        shutil.rmtree(checkpoints(folder)[-1])  # the run was killed after its first checkpoint
        (folder / "record.json").unlink()
        layout = [*layout_overrides(replication), *overrides]
        again = ranks(world_size)(run_in_parts, case(graph_file, folder, *layout, *keys, "resume=auto"))[0]
        assert [line["epoch"] for line in again["curve"]] == list(range(1, EPOCHS + 1))
        for line, other in zip(again["curve"], whole["curve"]):
            assert line["loss"] == pytest.approx(other["loss"], rel=1e-9)
        assert again["record"].metrics == whole["record"].metrics
        for key, tensor in whole["tensors"].items():
            assert torch.allclose(again["tensors"][key].double(), tensor.double(), rtol=0, atol=1e-9), key


def run_in_parts(world: World, cfg: Config) -> dict[str, Any]:
    """``run`` with parts of a few rows."""
    before, gather.PART_BYTES = gather.PART_BYTES, 300
    try:
        return run(world, cfg)
    finally:
        gather.PART_BYTES = before


def test_float32_on_another_layout(ranks, tmp_path: Path, graph_file: Path) -> None:
    keys = ["runtime.dtype=float32", f"train.checkpoint_every={EPOCHS // 2}", "train.keep_checkpoints=9"]
    whole = ranks(1)(run, case(graph_file, tmp_path / "whole", *keys))[0]
    first = checkpoints(tmp_path / "whole")[0]
    other = [*layout_overrides(2), "reorder=metis", *keys, f"resume={first}"]
    again = ranks(4)(run, case(graph_file, tmp_path / "again", *other))[0]
    losses = [np.array([line["loss"] for line in finished["curve"]]) for finished in (whole, again)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def outcome(world: World, cfg: Config) -> str:
    """The error of a run, or an empty text."""
    try:
        run_on(world, cfg)
        return ""
    except FullGNNError as error:
        assert isinstance(error, (ConfigError, DataError))
        return str(error)


@pytest.fixture(scope="module")
def trained(ranks, tmp_path_factory, graph_file: Path) -> Path:
    """The folder of a run of two epochs."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    cfg = case(graph_file, folder, "train.epochs=2", "train.checkpoint_every=1", "schedule=cosine")
    ranks(2)(outcome, cfg)
    return folder


REFUSED = {
    "model.hidden_channels=8": "resume: model.hidden_channels is 16 in the checkpoint and 8 here: give",
    "model=sage": "resume: model._target_ is fullgnn.models.GCN in the checkpoint and fullgnn.models.SAGE here",
    "optimizer=sgd": "resume: optimizer._target_ is torch.optim.Adam",
    "optimizer.lr=0.5": "resume: optimizer.lr is 0.01 in the checkpoint and 0.5 here",
    "seed=5": "resume: seed is 4 in the checkpoint and 5 here",
    "runtime.dtype=float32": "resume: runtime.dtype is float64 in the checkpoint and float32 here",
    "normalization=row": "resume: model.normalization is sym in the checkpoint and row here",
    "train.epochs=5": "resume: schedule.T_max is 2 in the checkpoint and 5 here",
    "task.label_smoothing=0.1": "resume: task.label_smoothing is 0.0 in the checkpoint and 0.1 here",
    "resume=nowhere": "nowhere holds no checkpoint: give a run folder",
    "overwrite=true": "overwrite=true removes the run that resume=auto goes on with",
}


@pytest.mark.parametrize("override", REFUSED)
def test_what_does_not_fit_is_refused_by_name(ranks, trained: Path, graph_file: Path, override: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    cfg = case(graph_file, trained, "train.epochs=2", "schedule=cosine", "resume=auto", override)
    messages = ranks(2)(outcome, cfg)
    assert messages[0] == messages[1] and messages[0].startswith(REFUSED[override]) and "\n" not in messages[0]
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda graph: dataclasses.replace(graph, labels=1 - graph.labels.clip(max=1)), "its edges, features, labels"),
        (lambda graph: graph.permute(np.arange(29)[::-1].copy()), "its edges, features, labels or splits differ"),
        (lambda graph: dataclasses.replace(graph, features=graph.features[:, :3]), "num_features is 5 in the"),
        (lambda graph: graph.symmetrized(), "num_edges is"),
    ],
)
def test_another_graph_is_refused_by_name(ranks, tmp_path: Path, trained: Path, change: Any, message: str) -> None:
    other = tmp_path / "other.npz"
    change(graph_of("directed")).save(other)
    cfg = case(other, trained, "train.epochs=2", "schedule=cosine", "resume=auto")
    messages = ranks(2)(outcome, cfg)
    assert messages[0] == messages[1] and messages[0].startswith("resume: ") and message in messages[0], messages[0]


def test_a_finished_run_is_not_trained_again(ranks, trained: Path, graph_file: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    cfg = case(graph_file, trained, "train.epochs=2", "schedule=cosine", "resume=auto")
    for finished in ranks(2)(run, cfg):
        assert finished["record"].epochs == 2
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


def test_a_run_that_was_killed_after_its_last_epoch_gets_its_record(ranks, tmp_path: Path, trained, graph_file) -> None:
    shutil.copytree(trained, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    (tmp_path / "run" / "record.json").unlink()
    cfg = case(graph_file, tmp_path / "run", "train.epochs=2", "schedule=cosine", "resume=auto")
    finished = ranks(2)(run, cfg)[0]["record"]
    assert (finished.epochs, finished.resumed_after, finished.best_epoch) == (2, 2, record["best_epoch"])
    assert finished.metrics == record["metrics"] and finished.final_loss is None


def test_a_damaged_checkpoint_gives_way_to_an_earlier_one(ranks, tmp_path: Path, trained, graph_file) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "record.json").unlink()
    last = checkpoints(tmp_path / "run")[-1]
    (last / "state.pt").write_bytes((last / "state.pt").read_bytes()[:500])
    keys = ["train.epochs=2", "schedule=cosine"]
    assert (
        "choose an earlier checkpoint"
        in ranks(2)(outcome, case(graph_file, tmp_path / "other", *keys, f"resume={last}"))[0]
    )
    again = ranks(2)(run, case(graph_file, tmp_path / "run", *keys, "train.checkpoint_every=1", "resume=auto"))[0]
    assert again["record"].resumed_after == 1
    assert again["curve"] == left(trained)["curve"]


def test_without_a_checkpoint_a_run_begins_anew(ranks, tmp_path: Path, graph_file: Path) -> None:
    keys = ["train.epochs=3", "train.checkpoint_every=3"]
    first = ranks(2)(run, case(graph_file, tmp_path / "run", *keys, "resume=auto"))[0]
    assert first["record"].resumed_after is None
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "record.json").unlink()  # killed before its first checkpoint
    again = ranks(2)(run, case(graph_file, tmp_path / "run", *keys, "resume=auto"))[0]
    assert again["curve"] == first["curve"] and len(again["curve"]) == 3


def test_only_the_last_checkpoints_are_kept_each_with_the_best_model(ranks, tmp_path: Path, graph_file: Path) -> None:
    keys = ["train.epochs=9", "train.checkpoint_every=2", "train.keep_checkpoints=3", "train.eval_every=1"]
    (tmp_path / "run" / "checkpoints" / "mine").mkdir(parents=True)
    finished = ranks(2)(run, case(graph_file, tmp_path / "run", *keys))[0]
    kept = checkpoints(tmp_path / "run")
    assert [place_of(path)[0] for path in kept] == [6, 8, 9]  # the last epoch has one too
    assert {path.name for path in kept[0].parent.iterdir()} == {"mine", *(path.name for path in kept)}
    best = files.read(kept[-1], files.BEST)["best"]
    assert best["epoch"] == finished["record"].best_epoch
    assert all(files.read(path, files.BEST)["best"]["epoch"] <= place_of(path)[0] for path in kept)


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_run(ranks, tmp_path: Path, graph_file: Path) -> None:
    """Not even while the other ranks send their rows of an embedding."""
    keys = ["train.epochs=4", "train.checkpoint_every=2", "model.embedding_channels=4"]
    lines = ranks(3)(full_disk, case(graph_file, tmp_path / "run", *keys))
    assert lines[0] == [
        f"{tmp_path}/run/checkpoints cannot be written (No space left on device): there is no checkpoint of epoch {k}"
        for k in (2, 4)
    ]
    assert lines[1:] == [[], []]
    assert (tmp_path / "run" / "record.json").exists() and not list((tmp_path / "run" / "checkpoints").iterdir())


def full_disk(world: World, cfg: Config) -> list[str]:
    """The warnings of a run whose checkpoints cannot be written."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(engine.__name__)

    def full(self: files.CheckpointWriter, name: str, content: Any) -> None:
        (self.folder / "begun").touch()
        raise OSError(28, "No space left on device")

    before, parts = files.CheckpointWriter.write, gather.PART_BYTES
    files.CheckpointWriter.write, gather.PART_BYTES = full, 300  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        run_on(world, cfg)
    finally:
        files.CheckpointWriter.write, gather.PART_BYTES = before, parts  # type: ignore[method-assign]
        logger.removeHandler(handler)
    return lines


def test_a_disk_that_fills_while_a_file_is_written(tmp_path: Path) -> None:
    with files.writing(tmp_path, 1) as writer:
        writer.write("state", {"small": torch.zeros(10)})
    (written,) = checkpoints(tmp_path)
    assert {file.name for file in written.iterdir()} == {"state.pt", files.FILES}
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"), files.writing(tmp_path, 2) as writer:
            writer.write("state", {"large": torch.zeros(1_000_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["epoch_000001"]


def test_a_checkpoint_without_a_file_of_rows_is_refused(ranks, tmp_path: Path, graph_file: Path) -> None:
    keys = ["train.epochs=2", "train.checkpoint_every=1", "model.embedding_channels=4"]
    ranks(2)(run_in_parts, case(graph_file, tmp_path / "run", *keys))
    first = checkpoints(tmp_path / "run")[0]
    (first / "state_rows_0001.pt").unlink()
    messages = ranks(2)(outcome, case(graph_file, tmp_path / "other", *keys, f"resume={first}"))
    assert messages[0] == messages[1]
    assert messages[0].startswith(f"{first} has no file state_rows_0001.pt: choose an")
    seal(first)
    messages = ranks(2)(outcome, case(graph_file, tmp_path / "other", *keys, f"resume={first}"))
    assert messages[0].startswith("the checkpoint lacks the rows of some nodes, so a file state_rows_*.pt is missing")


def test_a_checkpoint_holds_what_torch_loads_safely(trained: Path) -> None:
    for file in checkpoints(trained)[-1].glob("*.pt"):
        torch.load(file, weights_only=True)


def test_an_optimizer_that_keeps_a_row_and_a_column_of_a_matrix_goes_on(ranks, tmp_path: Path) -> None:
    keys = ["dataset=karate", "optimizer._target_=torch.optim.Adafactor", "~optimizer.betas", "~optimizer.eps"]
    keys += ["train.checkpoint_every=1", "runtime.threads=1"]
    for more in (["run_dir=whole", "train.epochs=4"], ["run_dir=again", "train.epochs=2"]):
        ranks(1)(run, load_config(compose(*keys, more[0].replace("=", f"={tmp_path}/"), more[1])))
    ranks(1)(run, load_config(compose(*keys, f"run_dir={tmp_path}/again", "train.epochs=4", "resume=auto")))
    for key, tensor in left(tmp_path / "whole")["tensors"].items():
        assert torch.equal(left(tmp_path / "again")["tensors"][key], tensor), key
