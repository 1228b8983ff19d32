"""Where the split comes from: it is drawn only if that is asked for or said, and a missing one is said at once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fullgnn import api, train, train_minibatch
from fullgnn.api import train_graph
from fullgnn.config import Config
from fullgnn.distributed import World, world_of_one
from fullgnn.engine import set_up
from fullgnn.engine.checks import check_training_data
from fullgnn.errors import ConfigError, DataError, FullGNNError
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.datasets import karate
from fullgnn.graph.splits import random_split
from fullgnn.prepare import arrange, source
from fullgnn.telemetry.meter import Meter
from tests.cases import config, minibatch_config

NO_MASKS = dict(train_mask=None, val_mask=None, test_mask=None)


def club(**changes: object) -> Graph:
    return replace(karate.load(train_per_class=4, num_val=8, seed=0), **changes)


def without(path: Path, *names: str) -> Path:
    """The file without some of its arrays."""
    with np.load(path) as file:
        arrays = {name: array for name, array in file.items() if name not in names}
    np.savez(path, **arrays)
    return path


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    club().save(tmp_path / "masked.npz")
    return tmp_path / "masked.npz"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    club().save(tmp_path / "plain.npz")
    return without(tmp_path / "plain.npz", *NO_MASKS)


def masks_of(graph: Graph) -> list[list[int]]:
    return [np.flatnonzero(mask).tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]


def noted(count: int, train_fraction: float, val_fraction: float, seed: int) -> dict[str, int]:
    """The remark on a random split."""
    shares = {"split_train_fraction": round(train_fraction * 1e6), "split_val_fraction": round(val_fraction * 1e6)}
    return {"random_split_nodes": count, **shares} | ({"split_seed": seed} if seed else {})


def drawn(train_fraction: float, val_fraction: float, seed: int) -> list[list[int]]:
    return [
        np.flatnonzero(mask).tolist()
        for mask in random_split(club().labels, train_fraction, val_fraction, seed).values()
    ]


@pytest.mark.parametrize(
    ("keys", "shares"),
    [
        ([], (0.6, 0.2, 0)),
        (["dataset.train_fraction=0.5"], (0.5, 0.2, 0)),
        (["dataset.val_fraction=0.1", "dataset.seed=3"], (0.6, 0.1, 3)),
    ],
)
def test_a_file_without_masks_is_split_and_says_so(plain: Path, keys: list[str], shares: tuple) -> None:
    graph = load_dataset(config("dataset=npz", f"dataset.path={plain}", *keys).dataset)
    assert masks_of(graph) == drawn(*shares) and graph.remarks == noted(34, *shares)
    some = np.where(np.arange(34) < 4, -1, graph.labels)
    replace(graph, labels=some, **NO_MASKS, remarks={}).save(plain)
    graph = load_dataset(config("dataset=npz", f"dataset.path={without(plain, *NO_MASKS)}", *keys).dataset)
    assert graph.remarks == noted(30, *shares)


@pytest.mark.parametrize(
    "keys",
    [["dataset.train_fraction=0.5"], ["dataset.train_fraction=0.6"], ["dataset.val_fraction=0.2"], ["dataset.seed=1"]],
)
def test_keys_of_a_split_that_would_do_nothing_are_refused(masked: Path, plain: Path, keys: list[str]) -> None:
    for path, why in ((masked, "has masks, which are its split"), (without(plain, "labels"), "has no labels, whose")):
        cfg = config("dataset=npz", f"dataset.path={path}", *keys)
        message = f"^{keys[0]} would do nothing, since .*{why}.*: leave it out$"
        with pytest.raises(ConfigError, match=message):
            train.COMMAND.start(cfg, [])
        with pytest.raises(ConfigError, match=message):
            load_dataset(cfg.dataset)


def test_masks_without_a_node_are_split_where_a_fraction_asks_for_it(tmp_path: Path) -> None:
    """``Graph.save`` always writes three masks."""
    path = tmp_path / "saved.npz"
    club(**NO_MASKS).save(path)
    keys, none = ["dataset=npz", f"dataset.path={path}"], [[], [], []]
    assert masks_of(load_dataset(config(*keys).dataset)) == none
    for fraction, shares in (("train_fraction=0.5", (0.5, 0.2, 0)), ("val_fraction=0.1", (0.6, 0.1, 0))):
        cfg = config(*keys, f"dataset.{fraction}")
        graph = load_dataset(cfg.dataset)
        assert masks_of(graph) == drawn(*shares) and graph.remarks == noted(34, *shares)
        check_training_data(cfg)
    with pytest.raises(DataError, match="no train_mask, .*give dataset.split=random"):
        check_training_data(config(*keys))
    with pytest.raises(ConfigError, match="has no labels, whose nodes"):
        without(path, "labels")
        check_training_data(config(*keys, "dataset.train_fraction=0.5"))


def test_the_configuration_of_an_earlier_version_still_reads_a_file_with_masks(masked: Path) -> None:
    node = dict(config("dataset=npz", f"dataset.path={masked}").dataset) | {"train_fraction": 0.6, "val_fraction": 0.2}
    node.pop("contents")
    assert masks_of(load_dataset(node)) == masks_of(club())


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fork_workers", "launch_workers"):
        monkeypatch.setattr(f"fullgnn.engine.command.{name}", lambda *_, **__: pytest.fail("ranks start"))
    monkeypatch.setattr(source, "load_dataset", lambda node: pytest.fail("the graph is loaded"))


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        (
            ("labels", *NO_MASKS),
            "has no labels and no train_mask, .*labelled nodes: write it with labels and train_mask",
        ),
        (("train_mask",), "has no train_mask, .*: write it with a train_mask .*dataset.split=random"),
        (("labels",), "has no labels, .*: write it with labels, or choose task=link_prediction"),
    ],
)
@pytest.mark.parametrize("module", [train, train_minibatch])
def test_a_file_that_shows_that_nothing_can_be_learned_starts_no_rank(
    masked: Path, removed: tuple[str, ...], message: str, module, nothing_starts
) -> None:
    make: Callable[..., Config] = config if module is train else minibatch_config
    cfg = make("dataset=npz", f"dataset.path={without(masked, *removed)}", "dataset.name=mine")
    with pytest.raises(DataError, match=f"^{masked} {message}") as refused:
        module.COMMAND.start(cfg, [])
    assert "\n" not in str(refused.value)
    with world_of_one(cfg.runtime) as world, pytest.raises(DataError, match=message):  # a rank of torchrun
        module.run_on(world, cfg)


def test_an_empty_train_mask_and_users_and_items_start_no_rank(tmp_path: Path, nothing_starts) -> None:
    club(**NO_MASKS).save(tmp_path / "empty.npz")
    with pytest.raises(DataError, match="no train_mask"):
        train.COMMAND.start(config("dataset=npz", f"dataset.path={tmp_path}/empty.npz"), [])
    for name in ("train", "test"):
        (tmp_path / f"{name}.txt").write_text("0 1\n1 2\n")
    keys = [f"dataset.{name}_path={tmp_path}/{name}.txt" for name in ("train", "test")]
    with pytest.raises(DataError, match="no labels and no train_mask, .*choose task=link_prediction"):
        train.COMMAND.start(config("dataset=interactions", *keys), [])


OWN = "from fullgnn.graph import Graph\ndef load(): return Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)\n"


def test_a_loader_that_says_nothing_is_refused_before_its_graph_is_ordered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_graph.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(arrange, "node_order", lambda *_: pytest.fail("the graph is ordered"))
    cfg = config("dataset=karate", f"run_dir={tmp_path}/run")
    cfg.dataset = {"_target_": "my_graph.load", "name": "mine", "symmetrize": False}
    with (
        world_of_one(cfg.runtime) as world,
        pytest.raises(DataError, match="the graph mine has no labels and no train"),
    ):
        train.run_on(world, cfg)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that ``train_graph`` hands to ranks."""
    graphs: list[Graph] = []
    monkeypatch.setattr(api, "start", lambda cfg, *_: graphs.append(load_dataset(cfg.dataset)))
    return graphs


def test_train_graph_splits_a_graph_without_masks_if_it_is_told(started: list[Graph]) -> None:
    graph = club(**NO_MASKS)
    train_graph(graph, {"dataset.train_fraction": 0.5})
    train_graph(graph, dataset={"train_fraction": 0.3, "val_fraction": 0.3, "seed": 2})
    train_graph(graph, "dataset.val_fraction=0.1")
    shares = [(0.5, 0.2, 0), (0.3, 0.3, 2), (0.6, 0.1, 0)]
    assert [masks_of(used) for used in started] == [drawn(*share) for share in shares]
    assert [used.remarks for used in started] == [noted(34, *share) for share in shares] and not graph.train_mask.any()


@pytest.mark.parametrize(
    ("graph", "settings", "kind", "message"),
    [
        (
            club(**NO_MASKS),
            {},
            DataError,
            "karate has no train_mask, .*: pass train_mask=... .*set dataset.split=random",
        ),
        (club(**NO_MASKS), {"dataset.seed": 1}, DataError, "has no train_mask"),
        (
            club(**NO_MASKS, labels=None),
            {},
            DataError,
            "has no labels and no train_mask, .*labels=... and train_mask=...",
        ),
        (
            club(),
            {"dataset.train_fraction": 0.6},
            ConfigError,
            "train_fraction=0.6 would do nothing, since the graph has masks",
        ),
        (club(), {"dataset.seed": 1}, ConfigError, "dataset.seed=1 would do nothing"),
        (club(**NO_MASKS, labels=None), {"dataset.train_fraction": 0.6}, ConfigError, "no labels, whose nodes"),
        (
            club(),
            {"dataset.train_fraction": 0.6, "task": "link_prediction"},
            ConfigError,
            "task.val_fraction holds some",
        ),
        (club(**NO_MASKS), {"dataset.train_fraction": 1.5}, ConfigError, "is no share of the nodes"),
        (club(**NO_MASKS), {"dataset.train_fraction": float("nan")}, ConfigError, "is no share of"),
        (
            club(train_mask=None),
            {},
            DataError,
            "or set dataset.split=random",
        ),
        (club(), {"dataset.contents": "x"}, ConfigError, "train_graph has its graph already"),
    ],
)
def test_what_train_graph_cannot_split_is_refused(
    graph: Graph, settings: dict, kind: type, message: str, started
) -> None:
    with pytest.raises(FullGNNError, match=message) as refused:
        train_graph(graph, settings)
    assert type(refused.value) is kind and "\n" not in str(refused.value) and not started


def test_the_graph_without_masks_may_still_learn_links(started: list[Graph]) -> None:
    train_graph(club(**NO_MASKS, labels=None), task="link_prediction")
    assert len(started) == 1 and started[0].remarks == {}


def test_train_graph_splits_any_graph_by_a_method(started: list[Graph]) -> None:
    train_graph(club(), "dataset.split=kfold", "dataset.fold=2")
    train_graph(club(**NO_MASKS), dataset={"split": "stratified", "train_fraction": 0.5, "split_seed": 3})
    expected = [club().split("kfold", fold=2), club(**NO_MASKS).split("stratified", train_fraction=0.5, seed=3)]
    assert [masks_of(graph) for graph in started] == [masks_of(graph) for graph in expected]
    assert [graph.remarks for graph in started] == [graph.remarks for graph in expected]
    for settings, message in (
        (
            {"dataset.split": "random", "task": "link_prediction"},
            "dataset.split=random would do nothing, since task",
        ),
        ({"dataset.split": 3}, "the masks have one split: leave it out"),
        ({"dataset.split": "public"}, "dataset.split=public is not known"),
        ({"dataset.split": "per_class"}, "train_per_class=20: choose 1 to 17"),
        ({"dataset.num_folds": 3}, "dataset.num_folds=3 would do nothing"),
    ):
        with pytest.raises(FullGNNError, match=message):
            train_graph(club(), settings)
    assert len(started) == 2


@pytest.mark.sample(2)
def test_a_method_of_a_split_is_refused_for_a_task_that_finds_links() -> None:
    with pytest.raises(ConfigError, match="dataset.split=random would do nothing, since task=link_prediction"):
        check_training_data(config("dataset=karate", "dataset.split=random", "task=link_prediction"))


def test_the_split_is_the_same_on_any_number_of_ranks(tmp_path: Path, ranks) -> None:
    """The masks of the nodes of all ranks together."""
    cfg = config("dataset=karate", "dataset.split=kfold", "dataset.fold=3", "scheme=1d")
    expected = masks_of(load_dataset(cfg.dataset))
    for size in (1, 3):
        of_ranks = ranks(size)(split_of_ranks, cfg)
        assert [sorted(sum((masks[part] for masks in of_ranks), [])) for part in range(3)] == expected


def split_of_ranks(world: World, cfg: Config) -> list[list[int]]:
    job = set_up(cfg, world, Meter(world.device))
    return [job.scheme.node_id[mask].tolist() for mask in job.graph.masks]
