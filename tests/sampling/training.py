"""Helpers that test_training.py shares with other test modules."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.config import MinibatchConfig
from fullgnn.distributed import World
from fullgnn.storage import checkpoint as files
from fullgnn.storage.folder import checkpoints
from fullgnn.train_minibatch import run_on
from tests.cases import dense_graph, minibatch_config

EPOCHS = 4
MODELS = {
    "sage": ["model=sage", "sampler.fanouts=[4,3]"],
    "gcn": ["model=gcn", "sampler.fanouts=[4,3]", "optimizer=sgd", "optimizer.lr=0.3", "train.clip_norm=0.5"],
    "gat": ["model=gat", "sampler.fanouts=[4,3]", "model.heads=2", "schedule=cosine"],
    "gin": ["model=gin", "sampler.fanouts=[3,3,2]", "model.num_layers=3", "sampler.replace=true"],
    "appnp": ["model=appnp", "model.num_hops=3", "sampler.fanouts=[3,2,2]"],
    "clusters": ["model=gcn", "sampler=cluster", "sampler.num_clusters=7", "sampler.group_size=2"],
    "sage clusters": ["model=sage", "sampler=cluster", "sampler.num_clusters=9", "sampler.group_size=1"],
}


@pytest.fixture(scope="module", autouse=True)
def graph_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, paths = tmp_path_factory.mktemp("graphs"), {}
    for kind in ("directed", "weighted"):
        graph = dense_graph(kind).graph()
        paths[kind] = folder / f"{kind}.npz"
        replace(graph, test_mask=~graph.train_mask & ~graph.val_mask).save(paths[kind])
    return paths


def common(path: Path, run_dir: Path, *overrides: str) -> list[str]:
    return [
        "dataset=npz", f"dataset.path={path}", f"run_dir={run_dir}", "runtime.dtype=float64", "runtime.threads=1",
        "seed=4", "model.dropout=0.3", f"train.epochs={EPOCHS}", "train.eval_every=2", *overrides,
    ]  # fmt: skip


def case(path: Path, run_dir: Path, *overrides: str) -> MinibatchConfig:
    return minibatch_config(*common(path, run_dir, "loader.batch_size=3", *overrides))


def run(world: World, cfg: MinibatchConfig) -> dict[str, Any]:
    run_on(world, cfg)
    return left(Path(cfg.run_dir)) if world.rank == 0 else {}


def left(run_dir: Path) -> dict[str, Any]:
    """The loss and metrics of each epoch, the record, and the last parameters if there is a checkpoint."""
    lines = [json.loads(line) for line in (run_dir / "epochs.jsonl").read_text().splitlines()]
    outcome: dict[str, Any] = {
        "loss": [line["loss"] for line in lines],
        "val": [line["val_accuracy"] for line in lines if "val_accuracy" in line],
        "record": json.loads((run_dir / "record.json").read_text()),
    }
    if last := checkpoints(run_dir):
        state = files.read(last[-1], files.STATE)["state"]
        outcome["model"] = torch.cat([value.flatten() for value in state["model"].values()])
    return outcome


def same(result: dict[str, Any], other: dict[str, Any], tolerance: float) -> None:
    np.testing.assert_allclose(result["loss"], other["loss"], rtol=tolerance, atol=tolerance)
    assert result["val"] == other["val"] and result["record"]["metrics"] == other["record"]["metrics"]
    if "model" in result and "model" in other:
        torch.testing.assert_close(result["model"], other["model"], rtol=tolerance, atol=tolerance)
