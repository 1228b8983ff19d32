"""A run says each remark on its graph once, and its record has it: also from a cache, and sampled."""

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fullgnn import train, train_minibatch
from fullgnn.distributed import World, world_of_one
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.remarks import SENTENCES
from fullgnn.sampling import clusters
from fullgnn.storage.record import RunRecord
from tests.cases import config, minibatch_config

NODE = np.arange(12)
RING = np.stack([NODE, (NODE + 1) % 12])
FOUND = {"merged_arcs": 2, "zero_arcs": 1}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    arcs = np.concatenate([RING, RING[::-1], RING[:, :2], [[3], [7]]], axis=1)
    weight = np.ones(arcs.shape[1])
    weight[-1] = 0
    masks = dict(train_mask=NODE % 3 == 0, val_mask=NODE % 3 == 1)
    graph = Graph.from_edge_index(
        arcs, features=np.eye(12), labels=NODE % 2, num_nodes=12, edge_weight=weight, name="ring", **masks
    )
    assert graph.remarks == FOUND
    graph.save(tmp_path / "ring.npz")
    return tmp_path / "ring.npz"


def keys(file: Path, *more: str) -> list[str]:
    return [
        "dataset=npz", f"dataset.path={file}", f"run_dir={file.parent}/run", "train.epochs=2", "overwrite=true",
        "train.checkpoint_every=0", "runtime.threads=1", "runtime.nproc=1", *more,
    ]  # fmt: skip


class Heard(logging.Handler):
    """How often each remark of ``SENTENCES`` is logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        ends = {name: sentence.partition("{count}")[2] for name, sentence in SENTENCES.items() if sentence}
        self.counts.update(name for name, end in ends.items() if record.getMessage().endswith(end))


def run(world: World, sampled: bool, overrides: list[str]) -> tuple[RunRecord, Counter[str]]:
    heard, logger = Heard(), logging.getLogger("fullgnn")
    before = logger.level
    logger.addHandler(heard)
    logger.setLevel(logging.INFO)
    try:
        if sampled:
            record = train_minibatch.run_on(world, minibatch_config(*overrides))
        else:
            record = train.run_on(world, config(*overrides))
    finally:
        logger.removeHandler(heard)
        logger.setLevel(before)
    return record, heard.counts


@pytest.mark.sample(3)
@pytest.mark.parametrize("cached", [False, True], ids=["anew", "cached"])
@pytest.mark.parametrize("sampled", [False, True], ids=["full batch", "sampled"])
def test_one_line_and_one_entry_for_each_remark(file: Path, sampled: bool, cached: bool) -> None:
    more = [f"runtime.cache_dir={file.parent}/cache"] if cached else []
    more += ["sampler.fanouts=[2,2]", "loader.num_workers=0"] if sampled else []
    for _ in range(1 + cached):
        with world_of_one(config(*keys(file)).runtime) as world:
            record, lines = run(world, sampled, keys(file, *more))
        assert record.remarks == FOUND and lines == Counter(FOUND.keys())


def test_clusters_without_a_node_are_said_without_any_evaluation(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ["train.eval_every=0", "sampler=cluster", "sampler.num_clusters=11", "sampler.group_size=2"]
    monkeypatch.setattr(clusters, "kway", lambda pattern, count, seed: NODE % 4)
    with world_of_one(config(*keys(file)).runtime) as world:
        record, lines = run(world, True, keys(file, *more))
    assert record.remarks == {**FOUND, "empty_clusters": 7} and lines == Counter(record.remarks.keys())


CLASSES = ("empty_classes", "untrained_classes")
ODD = dict.fromkeys(("self_loops", "isolated_nodes", "missing_reverse_arcs", *CLASSES), 1)


@pytest.fixture
def odd_file(tmp_path: Path) -> Path:
    """A ring with a self-loop, an isolated node, an arc without its reverse, and two classes that nothing trains."""
    arcs = np.concatenate([RING, RING[::-1], [[2], [2]], [[0], [5]]], axis=1)
    labels = np.append(NODE % 3, 4)  # class 3 is of no node, and class 4 of no training node
    masks = dict(train_mask=np.append(NODE % 2 == 0, False), val_mask=np.append(NODE % 2 == 1, True))
    graph = Graph.from_edge_index(arcs, features=np.eye(13), labels=labels, num_nodes=13, name="odd", **masks)
    graph.save(tmp_path / "ring.npz")
    return tmp_path / "ring.npz"


@pytest.mark.parametrize("sampled", [False, True], ids=["full batch", "sampled"])
def test_what_is_odd_is_said_once(odd_file: Path, sampled: bool) -> None:
    overrides = keys(odd_file, *(["sampler.fanouts=[2,2]", "loader.num_workers=0"] if sampled else []))
    with world_of_one(config(*keys(odd_file)).runtime) as world:
        record, lines = run(world, sampled, overrides)
    assert record.remarks == ODD and lines == Counter(ODD.keys())


def remarks_of(world: World, overrides: list[str]) -> dict[str, int]:
    record, _ = run(world, False, overrides)
    return dict(record.remarks)


def test_they_reach_every_rank(ranks, file: Path) -> None:
    for cache in ([], *[[f"runtime.cache_dir={file.parent}/cache"]] * 2):
        assert ranks(2)(remarks_of, keys(file, "scheme=1d", *cache)) == [FOUND, FOUND]


def test_what_is_odd_is_the_same_in_any_number_of_parts(ranks, odd_file: Path) -> None:
    assert ranks(3)(remarks_of, keys(odd_file, "scheme=1d", "reorder=rcm")) == [ODD] * 3


def test_symmetrize_and_a_graph_that_is_directed_on_purpose_leave_nothing_to_say(odd_file: Path) -> None:
    with world_of_one(config(*keys(odd_file)).runtime) as world:
        assert "missing_reverse_arcs" not in remarks_of(world, keys(odd_file, "dataset.symmetrize=true"))
        graph = load_dataset(config(*keys(odd_file)).dataset)
        replace(graph, indptr=np.append(0, np.minimum(np.arange(1, 14), 12)), indices=RING[1]).save(odd_file)
        assert remarks_of(world, keys(odd_file)).keys() & ODD.keys() <= {"isolated_nodes", *CLASSES}
