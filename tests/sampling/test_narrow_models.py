"""Sampled training of models with one output, and of models that read no neighbours."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn import train
from fullgnn.config import MinibatchConfig
from fullgnn.distributed import World, world_of_one
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.samplers import neighbor
from fullgnn.schemes import BlockRequest
from fullgnn.train_minibatch import run_on
from tests.cases import config, dense_graph, minibatch_config
from tests.sampling.training import left, run

MODELS = {
    "ngcn": (["model=ngcn", "model.num_powers=3"], "[-1,-1,-1,-1]"),
    "ngcn, copies": (["model=ngcn", "model.num_powers=2", "model.num_copies=2", "model.bias=false"], "[-1,-1]"),
    "mlp": (["model=mlp", "model.num_layers=2"], "[]"),
    "mlp, one layer": (["model=mlp", "model.num_layers=1"], "[]"),
    "sage": (["model=sage", "model.hidden_channels=1"], "[-1,-1]"),
    "gat": (["model=gat", "model.hidden_channels=1", "model.heads=1"], "[-1,-1]"),
}
OUTPUTS = ("one number", "one label", "two classes")


@pytest.fixture(scope="module", autouse=True)
def graph_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, rng, paths = tmp_path_factory.mktemp("graphs"), np.random.default_rng(2), {}
    graph = dense_graph("weighted").graph()
    masked = {"test_mask": ~graph.train_mask & ~graph.val_mask, "num_classes": 0}
    labels = {
        "one number": rng.standard_normal(graph.num_nodes),
        "one label": rng.integers(0, 2, (graph.num_nodes, 1)),
        "two classes": rng.integers(0, 2, graph.num_nodes),
    }
    for name in OUTPUTS:
        paths[name] = folder / f"{name.replace(' ', '_')}.npz"
        replace(graph, labels=labels[name], **masked).save(paths[name])
    return paths


def keys_of(path: Path, outputs: str, run_dir: Path, model: list[str]) -> list[str]:
    task = "node_regression" if outputs == "one number" else "node_classification"
    return [
        "dataset=npz", f"dataset.path={path}", f"run_dir={run_dir}", "runtime.dtype=float64", "runtime.threads=1",
        "train.epochs=3", "train.eval_every=1", "model.dropout=0.2", f"task={task}", *model,
    ]  # fmt: skip


def same(result: dict[str, Any], other: dict[str, Any]) -> None:
    np.testing.assert_allclose(result["loss"], other["loss"], rtol=1e-9)
    metrics, others = result["record"]["metrics"], other["record"]["metrics"]
    assert metrics.keys() == others.keys() and None not in metrics.values()
    np.testing.assert_allclose(list(metrics.values()), list(others.values()), rtol=1e-9)


CRASHED = [("ngcn, copies", "one number"), ("mlp", "two classes")]
OTHERS = [pair for pair in product(MODELS, OUTPUTS) if pair not in CRASHED]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("model", "outputs"), CRASHED)
def test_all_neighbours_are_full_batch_training(
    tmp_path: Path, graph_files: dict[str, Path], model: str, outputs: str
) -> None:
    """The dense oracle is behind full-batch training, which tests of their own compare with it."""
    keys, fanouts = MODELS[model]
    shared = keys_of(graph_files[outputs], outputs, tmp_path / "full", keys)
    full = config(*shared)
    sampled = minibatch_config(*shared, f"sampler.fanouts={fanouts}", "loader.batch_size=7")
    sampled.run_dir = str(tmp_path / "sampled")
    with world_of_one(full.runtime) as world:
        train.run_on(world, full)
        run_on(world, sampled)
    same(left(tmp_path / "full"), left(tmp_path / "sampled"))


@pytest.mark.sample(10)
@pytest.mark.parametrize(("model", "outputs"), OTHERS)
def test_all_neighbours_of_other_models_are_full_batch_training(
    tmp_path: Path, graph_files: dict[str, Path], model: str, outputs: str
) -> None:
    test_all_neighbours_are_full_batch_training(tmp_path, graph_files, model, outputs)


def test_ranks_and_workers_train_without_neighbours(ranks, tmp_path: Path, graph_files: dict[str, Path]) -> None:
    """Seven training nodes in batches of two, so that a rank has none of the last batch."""

    def case(run_dir: str, *more: str) -> MinibatchConfig:
        keys = keys_of(graph_files["one label"], "one label", tmp_path / run_dir, MODELS["mlp"][0])
        return minibatch_config(*keys, "sampler.fanouts=[]", "loader.batch_size=2", *more)

    alone = case("alone")
    with world_of_one(alone.runtime) as world:
        single = run(world, alone)
    both = ranks(2)(run_all, [case("p2"), case("w2", "loader.num_workers=1")])[0]
    assert both[0]["loss"] == both[1]["loss"] and single["loss"][0] > single["loss"][-1]
    same(single, both[0])


def run_all(world: World, cases: list[MinibatchConfig]) -> list[dict[str, Any]]:
    return [run(world, cfg) for cfg in cases]


def test_a_sample_without_hops_reads_its_targets() -> None:
    graph = dense_graph("directed").graph()
    sampler = neighbor(HostGraph.of(graph, BlockRequest(()), "float64"), 0, 0, [])
    assert sampler.sample(sampler.items[:3], 1) == [] and sampler.sample(sampler.items[:0], 1) == []
    num_inputs, num_bytes = sampler.usual_size(3)
    assert num_inputs == 3 and num_bytes > 0
