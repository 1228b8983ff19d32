"""train_graph: which graphs it takes, and in which ways the keys of a run are given. ``test_train.py`` starts runs."""

import re
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pytest
from scipy.sparse import csr_array

from fullgnn import api
from fullgnn.api import train_graph
from fullgnn.config import Config
from fullgnn.errors import ConfigError, DataError, FullGNNError
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.datasets import karate
from fullgnn.storage.record import read_record
from tests.commands import ROOT

LINKS = {"task": "link_prediction", "model": {"embedding_channels": 4}}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, list[str], Graph]]:
    """The configuration, the overrides and the graph of each run that train_graph starts; no run begins."""
    runs: list[tuple[Config, list[str], Graph]] = []

    def start(cfg: Config, overrides: list[str], *_: object) -> None:
        runs.append((cfg, overrides, load_dataset(cfg.dataset)))

    monkeypatch.setattr(api, "start", start)
    return runs


def club() -> Graph:
    return karate.load(train_per_class=4, num_val=8, seed=0)


def data(**changes: Any) -> SimpleNamespace:
    """A stand-in for a PyTorch Geometric Data."""
    arcs, node = np.array([[0, 1, 2], [1, 2, 3]]), np.arange(4)
    sound = dict(edge_index=arcs, x=np.eye(4), y=node % 2, train_mask=node < 2, edge_attr=None)
    return SimpleNamespace(**{**sound, **changes})


def test_strings_mappings_and_keywords_give_the_same_run(started: list) -> None:
    train_graph(club(), "scheme=1.5d", "scheme.replication=1", "train.epochs=5", "model=sage", "run_dir=a")
    train_graph(club(), {"scheme": "1.5d", "scheme.replication": 1, "train.epochs": 5, "model": "sage", "run_dir": "a"})
    train_graph(
        club(), {"scheme": {"name": "1.5d", "replication": 1}, "train": {"epochs": 5}}, "model=sage", run_dir="a"
    )
    train_graph(club(), scheme={"name": "1.5d", "replication": 1}, train={"epochs": 5}, model="sage", run_dir="a")
    configs = [cfg for cfg, _, _ in started]
    for cfg in configs:
        cfg.dataset.pop("path")
    assert configs[0].train.epochs == 5 and configs[0].model["name"] == "sage" and configs[0].scheme["name"] == "1.5d"
    assert configs[1:] == configs[:1] * 3


def test_the_example_of_the_readme(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    configs: list[Config] = []

    def start(cfg: Config, *_: object) -> SimpleNamespace:
        configs.append(cfg)
        return SimpleNamespace(test_accuracy=0.5, epoch_time_ms={"median": 2.0})

    monkeypatch.setattr(api, "start", start)
    _, _, section = (ROOT / "README.md").read_text().partition("## Your own graph\n")
    code = section.partition("```python\n")[2].partition("```")[0]
    exec(code, {})
    shown = re.findall(r"print\(graph\)  # (.*)", code)
    assert capsys.readouterr().out.splitlines() == [*shown, "0.5 2.0"]
    assert (configs[0].train.epochs, configs[0].runtime.nproc, configs[0].reorder.name) == (50, 2, "metis")


def test_the_later_value_holds(started: list) -> None:
    train_graph(club(), "train.epochs=5", {"train.epochs": 6, "seed": 1}, train={"epochs": 7})
    cfg, overrides, _ = started[0]
    assert cfg.train.epochs == 7 and cfg.seed == 1
    assert [override for override in overrides if override.startswith("train.")] == [
        *("train.epochs=5", "train.epochs=6", "train.epochs=7")  # the ranks compose the same
    ]


def test_a_networkx_graph_a_scipy_matrix_and_a_pyg_data_are_graphs(started: list) -> None:
    directed = networkx.DiGraph([(0, 1), (1, 2)], name="it's directed")
    train_graph(directed, LINKS)
    train_graph(networkx.to_scipy_sparse_array(directed).T, LINKS)
    train_graph(data(), dataset={"name": "mine"})
    (_, _, first), (_, _, second), (_, _, third) = started
    for graph in (first, second):
        np.testing.assert_array_equal(graph.adjacency().toarray(), [[0, 0, 0], [1, 0, 0], [0, 1, 0]])
    assert [graph.name for graph in (first, second, third)] == ["it's directed", "graph", "mine"]
    assert third.num_features == 4 and third.train_mask.sum() == 2 and third.labels.tolist() == [0, 1, 0, 1]


def test_every_keyword_of_a_graph_is_refused_as_a_key_of_a_run() -> None:
    with pytest.raises(ConfigError, match=r"labels is no key of a run .*Graph.from_networkx\(g, labels=...\)"):
        train_graph(networkx.path_graph(3), labels=np.arange(3))


@pytest.mark.parametrize(
    ("graph", "kind", "message"),
    [
        (
            networkx.path_graph(3),
            DataError,
            r"the Graph of networkx has no labels and no train_mask, .*from_networkx\(g,",
        ),
        (
            csr_array(np.eye(3)),
            DataError,
            r"csr_array of scipy has no labels and no train_mask, .*Graph.from_scipy\(adj,",
        ),
        (data(train_mask=None), DataError, "has no train_mask, and task=node_classification .*: set train_mask, or"),
        (data(y=None, train_mask=None), DataError, "has no y and no train_mask, .*: set y and train_mask$"),
        (np.eye(3), DataError, "ndarray is no type of a graph: pass a fullgnn.Graph, a networkx graph, .*edge_index"),
        (None, DataError, "NoneType is no type of a graph"),
    ],
)
def test_what_is_missing_is_said_before_the_ranks_start(graph: Any, kind: type, message: str, started: list) -> None:
    with pytest.raises(kind, match=message) as error:
        train_graph(graph)
    assert "\n" not in str(error.value) and not started


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("dataset=cora", "train_graph has its graph already: remove dataset=cora"),
        ({"dataset": "cora"}, "train_graph has its graph already: remove dataset='cora'"),
        ("+dataset.path=x.npz", "train_graph has its graph already"),
        ({"dataset": {"path": "x.npz"}}, "train_graph has its graph already"),
        ("train.epoch=3", "did you mean train.epochs"),
        ({"train": {"epoch": 3}}, "did you mean train.epochs"),
        ({"nproc": 2}, "did you mean runtime.nproc"),
        ({"scheme": "2d"}, "scheme=2d is not known: choose one of"),
        (7, "a setting has the type int"),
    ],
)
def test_wrong_settings_are_one_line(settings: Any, message: str, started: list) -> None:
    with pytest.raises(FullGNNError, match=message) as error:
        train_graph(club(), settings)
    assert "\n" not in str(error.value) and not started


MISTAKES = {
    "key": {"train.epoch": 3},
    "group": {"nproc": 2},
    "choice": {"scheme": "2d"},
    "type": {"train.epochs": "many"},
    "number": {"seed": 2**70},
    "syntax": "train.epochs={",
    "range": {"train.epochs": 0},
    "model": {"model": "gnc"},
    "module": {"model._target_": "nowhere.Net"},
    "width": {"model.hidden_channels": 0},
    "optimizer": {"optimizer.lr": -1.0},
    "dataset": "dataset=cora",
    "device": {"runtime.backend": "nccl"},
    "run_dir": {"run_dir": "/proc/run"},
    "file": {"run_dir": __file__},
    "resume": {"resume": "nowhere"},
    "cache": {"runtime.cache_dir": __file__},
    "weights": {"task.class_weight": [1, 2, 3]},
}
"""Settings that are user errors, by what is wrong with them."""


def one_line_with_its_call(error: BaseException) -> None:
    """The error is a user error in one line, and its traceback shows the call, and nothing that lies below."""
    lines = traceback.format_exception(error)
    assert isinstance(error, FullGNNError) and "\n" not in str(error)
    assert error.__cause__ is None and error.__context__ is None
    assert lines[0] == "Traceback (most recent call last):\n" and sum("Traceback" in line for line in lines) == 1
    assert len("".join(lines).splitlines()) <= 12, "".join(lines)
    assert not re.search("hydra|omegaconf", "".join(lines[:-1]))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_user_error_has_no_chain(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {"runtime": {"device": "cpu"}, "train": {"epochs": 2}}
    with pytest.raises(FullGNNError) as error:
        train_graph(club(), keys, MISTAKES[name])
    one_line_with_its_call(error.value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "call",
    [
        lambda folder: train_graph(networkx.path_graph(3)),
        lambda folder: train_graph(data(y=["a", "b", "c", "d"])),
        lambda folder: train_graph(club(), config_dir=folder / "missing"),
        lambda folder: Graph(np.array([0, 2]), np.array([7])),
        lambda folder: Graph.from_scipy(csr_array(np.eye(3)), features=[["a"]] * 3),
        lambda folder: Graph.from_scipy(np.eye(3), remarks={"x": "y"}),
        lambda folder: Graph.from_edge_index([[0.5], [1]], num_nodes=2),
        lambda folder: Graph.from_edge_index([[0], [1, 2]], num_nodes=2),
        lambda folder: Graph.from_networkx(networkx.Graph([(0, 1, {"w": "a"})]), weight="w"),
        lambda folder: Graph.from_pyg(data(edge_index=None)),
        lambda folder: club().permute([0]),
        lambda folder: club().save(folder),
        lambda folder: club().save("/proc/graph.npz"),
        lambda folder: load_dataset({"_target_": "fullgnn.graph.datasets.karate.load", "train_per_class": 1}),
        lambda folder: read_record(folder),
    ],
)
def test_a_user_error_of_a_graph_has_no_chain(call: Any, tmp_path: Path) -> None:
    with pytest.raises(FullGNNError) as error:
        call(tmp_path)
    one_line_with_its_call(error.value)
