"""PaGraph's parts against the formula of the paper, with sets and fractions in loops."""

from collections import Counter
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from fullgnn.distributed import World, world_of_one
from fullgnn.engine.fit import fit
from fullgnn.errors import ConfigError
from fullgnn.sampling.neighbors import NeighborSampler
from fullgnn.sampling.pagraph import CrossFreeParts, cross_partition_free
from fullgnn.sampling.sample import Sample
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.sampling.steps import SampledSteps
from fullgnn.storage import checkpoint as files
from fullgnn.storage.folder import checkpoints
from fullgnn.telemetry.meter import Meter
from tests.cases import dense_graph, minibatch_config
from tests.sampling.pagraph import random_graph
from tests.sampling.training import run


def reads(indptr: np.ndarray, indices: np.ndarray, node: int, num_hops: int) -> set[int]:
    """A node, and what it reads in at most ``num_hops`` hops."""
    nodes = {node}
    for _ in range(num_hops):
        nodes |= {int(source) for target in nodes for source in indices[indptr[target] : indptr[target + 1]]}
    return nodes


def expected(indptr, indices, train, num_parts: int, num_hops: int) -> tuple[list[set[int]], list[set[int]]]:
    """TV_i and PV_i."""
    targets, nodes = [set() for _ in range(num_parts)], [set() for _ in range(num_parts)]
    average = -(-len(train) // num_parts)
    for node in map(int, train):
        near = reads(indptr, indices, node, num_hops)

        scores = [
            Fraction(len(own & near) * (average - len(own)), max(1, len(held))) for own, held in zip(targets, nodes)
        ]
        best = max((score, -len(targets[part]), -part) for part, score in enumerate(scores))[2] * -1
        targets[best].add(node)
        nodes[best] |= near
    return targets, nodes


def check(parts: CrossFreeParts, indptr: np.ndarray, indices: np.ndarray, num_hops: int) -> None:
    targets, nodes = expected(indptr, indices, parts.train, parts.num_parts, num_hops)
    for part in range(parts.num_parts):
        assert {*parts.train[parts.part == part].tolist()} == targets[part]
        assert {*parts.nodes(part).tolist()} == nodes[part] and parts.num_nodes[part] == len(nodes[part])
    held = set().union(*nodes)
    copies = sum(map(len, nodes)) - len(held)
    assert parts.redundancy == pytest.approx(copies / parts.num_parts / (len(indptr) - 1))
    assert parts.num_train.tolist() == [len(own) for own in targets]


@pytest.mark.parametrize("num_parts", [1, 2, 3, 8, 65])
@pytest.mark.parametrize("num_hops", [0, 1, 2, 3])
def test_parts_are_those_of_the_formula(num_parts: int, num_hops: int) -> None:
    for seed, degree in ((0, 1.5), (1, 4.0)):
        indptr, indices = random_graph(120, degree, seed)
        train = np.sort(np.random.default_rng(seed).choice(120, 78, replace=False))
        check(cross_partition_free(indptr, indices, train, num_parts, num_hops), indptr, indices, num_hops)


@pytest.mark.parametrize("kind", ["directed", "symmetric", "tiny"])
def test_small_graphs(kind: str) -> None:
    graph = dense_graph(kind).graph()
    train = np.flatnonzero(graph.train_mask)
    for some in (train, train[:0], train[:1]):
        parts = cross_partition_free(graph.indptr.astype(np.int64), graph.indices, some, 3, 2)
        check(parts, graph.indptr, graph.indices, 2)
    with pytest.raises(ConfigError, match="a graph cannot be cut into 0 parts: choose 1 or more"):
        cross_partition_free(graph.indptr, graph.indices, train, 0, 2)


@pytest.mark.parametrize("num_parts", [2, 4, 8])
def test_no_part_reads_another_one_and_parts_are_balanced(num_parts: int) -> None:
    indptr, indices = random_graph(6_000, 3.0, 2)
    train = np.sort(np.random.default_rng(0).choice(6_000, 3_900, replace=False))
    parts = cross_partition_free(indptr, indices, train, num_parts, 2)
    assert parts.imbalance < 1.02 and parts.num_train.min() > 0.98 * len(train) / num_parts
    sampler = NeighborSampler(indptr, indices, [3, 3])
    for part in range(num_parts):
        held = np.zeros(6_000, bool)
        held[parts.nodes(part)] = True
        for epoch in (1, 2):
            for hop in sampler.sample(train[parts.part == part], epoch):
                assert held[hop.sources].all()
    assert parts.redundancy > 0


KEYS = [
    "dataset=rmat",
    "dataset.num_nodes=300",
    "dataset.num_edges=1500",
    "dataset.num_features=5",
    "model.dropout=0.3",
]
KEYS += [
    "model.hidden_channels=8",
    "loader.batch_size=40",
    "runtime.dtype=float64",
    "runtime.device=cpu",
    "runtime.threads=1",
]
KEYS += ["optimizer.lr=0.05", "train.epochs=3"]
SPLIT = [*KEYS, "loader.split=pagraph"]


def batches_of_rank(world: World, keys: list[str]) -> list[list[tuple[list[int], float]]]:
    """Targets and total of each batch of two epochs."""
    loader = set_up_sampled(minibatch_config(*keys), world, Meter(world.device)).loader
    samples = [[loader.sampler.sample(epoch, number) for number in range(loader.num_batches)] for epoch in (1, 2)]
    return [[(sample.targets.tolist(), sample.total) for sample in epoch] for epoch in samples]


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_rank_shuffles_training_nodes_of_its_own(ranks, size: int) -> None:
    batches = ranks(size)(batches_of_rank, SPLIT)
    own = [{node for targets, _ in epochs[0] for node in targets} for epochs in batches]
    assert sum(map(len, own)) == len(set().union(*own)) == 180  # 0.6 of the nodes train
    for epoch in (0, 1):
        for rank, epochs in enumerate(batches):
            assert Counter(node for targets, _ in epochs[epoch] for node in targets) == Counter(own[rank])
            assert all(len(targets) <= -(-40 // size) for targets, _ in epochs[epoch])
        for parts in zip(*(epochs[epoch] for epochs in batches), strict=True):
            assert {total for _, total in parts} == {sum(len(targets) for targets, _ in parts)}
    assert batches[0][0] != batches[0][1]


def losses_of_unions(world: World, batches: list[list[list[int]]]) -> list[float]:
    """The loss of each epoch of one process that trains these batches."""
    cfg = minibatch_config(*KEYS)
    cfg.train.epochs, cfg.train.eval_every = 2, 0
    training = set_up_sampled(cfg, world, Meter(world.device))
    sampler = training.loader.sampler

    def sample(epoch: int, number: int) -> Sample:
        nodes = np.array(batches[epoch - 1][number])
        return Sample(nodes, sampler.sampler.sample(nodes, epoch), float(len(nodes)))

    sampler.sample, training.loader.num_batches = sample, len(batches[0])
    with mock.patch.object(SampledSteps, "evaluate", lambda steps, look: {"val_accuracy": 0.0}):
        return [epoch.loss for epoch in fit(training).epochs]


@pytest.mark.sample(4)
def test_losses_are_those_of_one_process_with_the_same_batches(ranks, tmp_path: Path) -> None:
    batches = ranks(3)(batches_of_rank, SPLIT)
    unions = [
        [sorted(sum((targets for targets, _ in parts), [])) for parts in zip(*(epochs[e] for epochs in batches))]
        for e in (0, 1)
    ]
    (expected,) = ranks(1)(losses_of_unions, unions)
    for name, more in {
        "plain": [],
        "ahead and cached": ["loader.num_workers=1", "cache=exact", "cache.megabytes=1e-3"],
    }.items():
        cfg = minibatch_config(*SPLIT, *more, f"run_dir={tmp_path / name}", "train.eval_every=0")
        loss = ranks(3)(run, cfg)[0]["loss"]
        np.testing.assert_allclose(loss[:2], expected, rtol=1e-9)


@pytest.mark.sample(2)
def test_a_run_goes_on_in_mid_epoch_with_as_many_ranks(ranks, tmp_path: Path) -> None:
    whole = ranks(2)(run, minibatch_config(*SPLIT, f"run_dir={tmp_path / 'whole'}"))[0]
    keys = [*SPLIT, f"run_dir={tmp_path / 'cut'}", "train.checkpoint_every_batches=2", "train.keep_checkpoints=100"]
    ranks(2)(run, minibatch_config(*keys, "train.checkpoint_every=1"))
    for checkpoint in checkpoints(tmp_path / "cut")[:4]:
        in_epoch = files.read(checkpoint, files.STATE)["state"]["batches"]["count"] > 0
        for size in (2, 3):
            folder = tmp_path / f"{checkpoint.name} {size}"
            cfg = minibatch_config(*SPLIT, f"run_dir={folder}", f"resume={checkpoint}")
            if size == 3 and in_epoch:
                with pytest.raises(AssertionError, match=r"divided among 2 processes .* go on with as many, or from"):
                    ranks(size)(run, cfg)
            elif size == 2:
                same_end(ranks(size)(run, cfg)[0]["loss"], whole["loss"])
            else:
                assert np.isfinite(ranks(size)(run, cfg)[0]["loss"]).all()
    cfg = minibatch_config(*KEYS, f"run_dir={tmp_path / 'other'}", f"resume={checkpoints(tmp_path / 'cut')[0]}")
    with pytest.raises(AssertionError, match="loader.split is pagraph in the checkpoint and even here"):
        ranks(2)(run, cfg)


def same_end(losses: list[float], whole: list[float]) -> None:
    np.testing.assert_allclose(losses, whole[len(whole) - len(losses) :], rtol=1e-12)


def test_clusters_are_not_divided() -> None:
    cfg = minibatch_config(*SPLIT, "sampler=cluster")
    with (
        world_of_one(cfg.runtime) as world,
        pytest.raises(ConfigError, match="loader.split=pagraph divides training nodes"),
    ):
        set_up_sampled(cfg, world, Meter(world.device))
