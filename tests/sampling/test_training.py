"""Sampled training: the same on any number of ranks, after any checkpoint, and with all neighbours, full-batch."""

from pathlib import Path

import numpy as np
import pytest

from fullgnn import train
from fullgnn.config import MinibatchConfig
from fullgnn.distributed import World, world_of_one
from fullgnn.errors import FullGNNError
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.samplers import neighbor
from fullgnn.schemes import BlockRequest
from fullgnn.storage.folder import checkpoints, place_of
from fullgnn.tasks import MultiClass
from fullgnn.train_minibatch import run_on
from tests.cases import config, dense_graph, minibatch_config
from tests.sampling.training import EPOCHS, MODELS, case, common, left, run, same

LAYOUTS = (1, 2, 3, 4)


@pytest.mark.sample(20)
@pytest.mark.parametrize("kind", ["directed", "weighted"])
@pytest.mark.parametrize("model", MODELS)
def test_any_number_of_ranks_gives_the_same_curve(
    ranks, tmp_path: Path, graph_files: dict[str, Path], kind: str, model: str
) -> None:
    """Seven training nodes in batches of three: parts of unequal size, some of them empty."""
    keys = [*MODELS[model], "train.checkpoint_every=1"]
    if kind == "weighted" and model in ("sage", "gcn"):
        keys.append("sampler.weighted=true")
    results = [ranks(size)(run, case(graph_files[kind], tmp_path / f"p{size}", *keys))[0] for size in LAYOUTS]
    assert len(results[0]["loss"]) == EPOCHS and results[0]["loss"][0] != results[0]["loss"][1]
    for other in results[1:]:
        same(results[0], other, 1e-9)


FULL_BATCH = {
    "sage": ["model=sage"],
    "gcn": ["model=gcn", "train.clip_norm=0.5"],
    "gat": ["model=gat", "model.heads=2"],
    "gin": ["model=gin", "model.residual=true", "model.jumping_knowledge=max"],
    "sgc": ["model=sgc"],
    "ngcn": ["model=ngcn", "model.num_powers=2"],
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["directed", "weighted"])
@pytest.mark.parametrize("model", FULL_BATCH)
def test_all_neighbours_of_all_targets_are_full_batch_training(
    tmp_path: Path, graph_files: dict[str, Path], kind: str, model: str
) -> None:
    shared = common(graph_files[kind], tmp_path / "full", *FULL_BATCH[model])
    if model == "sgc":  # it has no dropout
        shared = [key for key in shared if not key.startswith("model.dropout")]
    full = config(*shared)
    sampled = minibatch_config(*shared, "sampler.fanouts=[-1,-1]", "loader.batch_size=7")
    sampled.run_dir = str(tmp_path / "sampled")
    with world_of_one(full.runtime) as world:
        train.run_on(world, full)
        run_on(world, sampled)
    same(left(tmp_path / "full"), left(tmp_path / "sampled"), 1e-9)


@pytest.mark.sample(2)
def test_a_run_goes_on_from_any_batch_on_any_number_of_ranks(
    ranks, tmp_path: Path, graph_files: dict[str, Path]
) -> None:
    keep = ["train.checkpoint_every=1", "train.checkpoint_every_batches=1", "train.keep_checkpoints=100"]
    keys = [*MODELS["sage"], "schedule=cosine", *keep]
    whole = ranks(2)(run, case(graph_files["directed"], tmp_path / "whole", *keys))[0]
    saved = checkpoints(tmp_path / "whole")
    places = [(epoch, count) for epoch in range(EPOCHS + 1) for count in range(3)]
    assert [place_of(file) for file in saved] == places[1 : 3 * EPOCHS + 1]
    for number in (0, 1, 2, 7, 10):
        target, size = tmp_path / f"again{number}", LAYOUTS[number % 4]
        again = ranks(size)(run, case(graph_files["directed"], target, *keys, f"resume={saved[number]}"))[0]
        same(whole, again, 0 if size == 2 else 1e-9)
        assert again["record"]["resumed_after"] == place_of(saved[number])[0]


def test_the_order_of_an_epoch_is_random_and_its_batches_are_those_of_any_number_of_ranks() -> None:
    items = np.flatnonzero(np.random.default_rng(0).random(5_000) < 0.3)
    orders = [epoch_order(items, seed, epoch) for seed, epoch in ((1, 1), (1, 2), (2, 1), (2**33 + 1, 1))]
    for order in orders:
        assert np.array_equal(np.sort(order), items)
        others = [other for other in orders if other is not order]
        assert all((other == order).mean() < 0.01 for other in others)
    assert np.array_equal(orders[0], epoch_order(items, 1, 1))
    count = num_batches(len(items), 64)
    batches = [batch_of(orders[0], 64, number) for number in range(count)]
    assert [len(batch) for batch in batches[:-1]] == [64] * (count - 1) and 0 < len(batches[-1]) <= 64
    assert np.array_equal(np.sort(np.concatenate(batches)), items)
    graph = dense_graph("directed").graph()
    sampler = neighbor(HostGraph.of(graph, BlockRequest(()), "float64"), 1, 0, [3])
    for batch in batches:
        parts = [sampler.part(batch, rank, 5) for rank in range(5)]
        assert np.array_equal(np.concatenate(parts), np.sort(batch))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


BAD = {
    "sampler.fanouts=[5]": "sampler.fanouts has 1 numbers, and the model reads neighbours 2 times: give one for each, "
    "as in sampler.fanouts=[5,10]",
    "sampler.fanouts=[5,0]": "sampler.fanouts has 0: give the number of neighbours",
    "sampler.weighted=true": "sampler.weighted=true needs edge weights, and the graph has none: set it to false",
    "loader.batch_size=0": "loader.batch_size=0 is out of range: it must be finite and at least 1",
    "train.checkpoint_every_batches=-1": "train.checkpoint_every_batches=-1 is out of range",
    "model.embedding_channels=4": "a trainable vector for each node, which sampled training does not support",
    "scheme=auto": "scheme=auto plans epochs of full-batch training: choose scheme=1d or scheme=1.5d",
    "runtime.dry_run=true world_size=2": "sampled training has no dry run: leave out runtime.dry_run",
    "task=link_prediction": "sampled training learns tasks of nodes, and task=link_prediction finds links: use",
}


@pytest.mark.parametrize("keys", BAD)
def test_bad_keys_end_with_one_line(tmp_path: Path, graph_files: dict[str, Path], keys: str) -> None:
    with pytest.raises(FullGNNError) as raised:
        cfg = case(graph_files["directed"], tmp_path / "run", *keys.split())
        with world_of_one(cfg.runtime) as world:
            run_on(world, cfg)
    assert BAD[keys] in str(raised.value) and "\n" not in str(raised.value)


class OwnLoss(MultiClass):
    """A task of a user that knows nothing of batches."""

    def loss(self, output, targets):  # type: ignore[no-untyped-def, override]
        return super().loss(output, targets)


def test_a_task_without_batches_is_refused(tmp_path: Path, graph_files: dict[str, Path]) -> None:
    cfg = case(graph_files["directed"], tmp_path / "run")
    cfg.task = {"_target_": f"{__name__}.OwnLoss", "name": "own"}
    with pytest.raises(FullGNNError, match="task=own cannot learn from batches: give its class the methods"):
        with world_of_one(cfg.runtime) as world:
            run_on(world, cfg)


def refused(world: World, cfg: MinibatchConfig) -> str:
    try:
        run_on(world, cfg)
    except FullGNNError as error:
        return str(error)
    return ""


def test_ranks_refuse_alike(ranks, tmp_path: Path, graph_files: dict[str, Path]) -> None:
    path = graph_files["directed"]
    lines = {
        "sampler.fanouts=[5]": "sampler.fanouts has 1 numbers",
        "model.norm=batch": "model=sage adds up the rows of a batch, some of which several ranks have",
        "sampler.weighted=true": "needs edge weights",
    }
    for key, line in lines.items():
        told = ranks(3)(refused, case(path, tmp_path / "run", key))
        assert len(set(told)) == 1 and line in told[0]
