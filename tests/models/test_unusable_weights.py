"""Weights whose sums nothing can be divided by: one line with the number of nodes and a cure, and the cure works."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from fullgnn import train, train_minibatch
from fullgnn.distributed import World, world_of_one
from fullgnn.engine import set_up
from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.telemetry.meter import Meter
from tests.cases import config, minibatch_config

MODELS = {
    "gcn": [],
    "appnp": ["model.num_hops=3"],
    "sgc": [],
    "gcnii": ["model.num_layers=2"],
    "ngcn": ["model.num_powers=3"],
    "sage": [],
}


def graph_of(weights: list[float], num_copies: int = 1) -> Graph:
    """Pairs of nodes that read from each other with one of the ``weights``, which a self-loop of weight 1 cancels."""
    size = 2 * len(weights) * num_copies
    dense = np.zeros((size, size))
    for pair, weight in enumerate(weights * num_copies):
        dense[2 * pair, 2 * pair + 1] = dense[2 * pair + 1, 2 * pair] = weight
    node = np.arange(size)
    return Graph.from_scipy(
        csr_array(dense), features=np.eye(size), labels=node // 2 % 2, train_mask=node % 2 == 0, val_mask=node % 2 == 1
    )


def common(path: Path, run_dir: Path, model: str) -> list[str]:
    return [
        "dataset=npz", f"dataset.path={path}", f"run_dir={run_dir}", f"model={model}", *MODELS[model],
        "train.epochs=2", "train.checkpoint_every=0", "runtime.threads=1", "runtime.nproc=1",
    ]  # fmt: skip


@pytest.mark.sample(10)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sampled", [False, True], ids=["full batch", "sampled"])
def test_the_cure_that_is_named_works(model: str, sampled: bool, tmp_path: Path) -> None:
    """-1 + 1e-8 and the self-loop 1; of sage, whose mean has no self-loop, -1."""
    path = tmp_path / "graph.npz"
    graph_of([1e-8 - 1, 0.5]).save(path)
    module, make = (train_minibatch, minibatch_config) if sampled else (train, config)
    keys = common(path, tmp_path / "refused", model)
    hops = {"appnp": 3, "ngcn": 4}.get(model, 2)
    keys += [f"sampler.fanouts={[2] * hops}", "loader.num_workers=0"] if sampled else []
    cfg = make(*keys)
    with world_of_one(cfg.runtime) as world, pytest.raises(DataError) as refused:
        module.run_on(world, cfg)
    message = str(refused.value)
    assert "(2 nodes are like that)" in message and "\n" not in message
    (cure,) = re.findall(r"use (\S+=\S+) or weights that are not negative$", message)
    cfg = make(*keys, cure, f"run_dir={tmp_path}/cured")
    with world_of_one(cfg.runtime) as world:
        record = module.run_on(world, cfg)
    assert record.final_loss is not None and np.isfinite(record.final_loss)


def refused(world: World, weights: list[float], keys: list[str]) -> str:
    cfg = config(*keys)
    graph = graph_of(weights, 3) if world.rank == 0 else None
    with pytest.raises(DataError) as caught:
        set_up(cfg, world, Meter(world.device), graph)
    return str(caught.value)


@pytest.mark.parametrize("layout", [["scheme=1d"], ["scheme=1.5d", "scheme.replication=2"]])
def test_every_rank_counts_the_nodes_of_all_parts(ranks, layout: list[str]) -> None:
    messages = ranks(4)(refused, [-1.0, 0.25, -1.5], ["model=appnp", "partition=random", *layout])
    assert len(set(messages)) == 1 and "sum to -0.5" in messages[0] and "(12 nodes are like that)" in messages[0]


def test_clusters_refuse_negative_weights_only_where_they_are_added_up(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    graph_of([-0.25, 0.5]).save(path)  # the sums of the whole graph are positive
    keys = [*common(path, tmp_path / "run", "gcn"), "sampler=cluster", "sampler.num_clusters=2"]
    cfg = minibatch_config(*keys)
    with world_of_one(cfg.runtime) as world, pytest.raises(DataError, match="^2 arcs have negative weights, and .*use"):
        train_minibatch.run_on(world, cfg)
    cfg = minibatch_config(*keys, "normalization=none")
    with world_of_one(cfg.runtime) as world:
        assert np.isfinite(train_minibatch.run_on(world, cfg).final_loss)
