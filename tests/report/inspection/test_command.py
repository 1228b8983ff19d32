"""``python -m fullgnn.inspect`` and ``fullgnn.inspect``: one name for a command, a function and a module."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import fullgnn
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.report.inspection import Inspection
from fullgnn.report.inspection.command import run
from fullgnn.report.inspection.page import page
from tests.commands import run_command
from tests.report.inspection.graphs import random_graph

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

TITLES = ["Degrees", "Components", "Labels", "Leaks", "Features", "Ranks", "Odd"]


def titles(text: str) -> list[str]:
    return [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]


@pytest.mark.sample(4)
def test_the_command_prints_and_writes_what_the_function_returns(tmp_path: Path) -> None:
    random_graph(0, name="mine").save(tmp_path / "mine.npz")
    arguments = ["dataset=npz", "dataset.path=mine.npz", "out=new/mine.json", "model=gat", "runtime.device=cpu"]
    done = run_command([sys.executable, "-m", "fullgnn.inspect"], *arguments, cwd=tmp_path)
    assert done.status == 0 and titles(done.output) == TITLES, done.output
    written = json.loads((tmp_path / "new" / "mine.json").read_text())
    inspection = fullgnn.inspect(random_graph(0, name="mine"), "runtime.device=cpu", model="gat")
    same = json.loads(json.dumps(inspection.to_json()))
    assert written.keys() == same.keys()
    assert all(written[key] == same[key] for key in written.keys() - {"seconds"})


IMPORTS = """
import sys
import fullgnn
assert "numba" not in sys.modules
of_fullgnn = [name.split(".")[1:] for name in sys.modules if name.startswith("fullgnn")]
assert not any({"inspect", "inspection"} & {*names} for names in of_fullgnn), of_fullgnn
import fullgnn.inspect
from fullgnn import inspect
from fullgnn.report.inspection import inspect as same
assert fullgnn.inspect is inspect is same and callable(inspect)
import fullgnn.inspect as again
assert again is inspect
import importlib.util
assert importlib.util.find_spec("fullgnn.inspect").name == "fullgnn.inspect"
"""


def test_the_package_imports_nothing_of_it_and_has_the_function_before_and_after_the_module(tmp_path: Path) -> None:
    done = run_command([sys.executable, "-c", IMPORTS], cwd=tmp_path)
    assert done.status == 0, done.output


def test_a_graph_of_another_library_and_every_kind_of_labels() -> None:
    networkx = pytest.importorskip("networkx")
    inspection = fullgnn.inspect(networkx.karate_club_graph())
    assert isinstance(inspection, Inspection) and (inspection.num_nodes, inspection.num_edges) == (34, 156)
    assert inspection.labels is None and inspection.structure.symmetric
    split = dict(train_mask=np.arange(40) < 20, test_mask=np.arange(40) >= 20, val_mask=None)
    for labels in (np.linspace(0, 1, 40), (np.arange(80).reshape(40, 2) % 3 == 0).astype(int)):
        inspection = fullgnn.inspect(random_graph(1, labels=labels, num_classes=0, **split), "runtime.device=cpu")
        assert inspection.unplanned == "" and inspection.layouts[0].tensor_bytes > 0, inspection.unplanned
        assert titles(str(inspection)) == TITLES


def test_classes_have_their_names() -> None:
    names = ("Case_Based", "Theory", "Rule | Learning", "x" * 300)
    text = str(fullgnn.inspect(random_graph(0, class_names=names)))
    assert "| 0 Case_Based " in text and "| 1 Theory " in text and "x" * 201 not in text


def odd_graph() -> Graph:
    arcs = np.array([[k, (k + 1) % 20] for k in range(20)]).T
    arcs = np.concatenate([arcs, arcs[::-1], [[0, 3], [5, 3]], arcs[:, :2]], axis=1)
    labels = np.append(np.arange(20) % 2, [3, -1])
    features = np.zeros((22, 5))
    features[:, 1], features[:, 2], features[:, 3] = 7, np.arange(22) * 1e6, np.arange(22) % 3
    features[:, 4] = np.append(1 - labels[:21], 0)
    features[21] = [0, 7, 0, 0, 0]
    masks = dict(train_mask=np.arange(22) < 10, test_mask=(np.arange(22) >= 10) & (labels >= 0))
    weights = np.ones(arcs.shape[1])
    weights[4] = -1
    return Graph.from_edge_index(arcs, edge_weight=weights, features=features, labels=labels, num_classes=4, **masks)


@pytest.fixture(scope="module")
def of_odd_graph() -> Inspection:
    return fullgnn.inspect(odd_graph(), "runtime.device=cpu")


def test_what_is_odd_is_named(of_odd_graph: Inspection) -> None:
    inspection = of_odd_graph
    assert inspection.remarks == {"merged_arcs": 2} and inspection.leaks.label_columns == (4,)
    begins = [
        "Class 2 is the class of no labelled node",
        "Class 3 is the class of no training node",
        "1 arcs are stored in one direction only",
        "1 nodes have a stored edge to themselves",
        "2 nodes are isolated",
        "1 entries have a negative weight",
        "Feature column 0 is 0 for every node",
        "Feature column 1 is the same number for every node",
        "Feature columns differ much in scale",
    ]
    assert [sentence[: len(begin)] for sentence, begin in zip(inspection.odd, begins, strict=True)] == begins
    text = str(inspection)
    assert "Noted as it was read: 2 arcs repeat another one" in text
    assert "The label is among the features, or a one-to-one map of it: column 4." in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_sentences_fit_the_screen(of_odd_graph: Inspection, width: int) -> None:
    text = page(of_odd_graph, width)
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= width
    assert ("A wider screen also has rows" in text) == (width == 40)


SMALLEST = {
    "a node": Graph.from_edge_index(np.empty((2, 0), int), num_nodes=1),
    "a self-loop": Graph.from_edge_index([[0], [0]], num_nodes=1, labels=[0], train_mask=[1], features=[[1.0]]),
    "users": Graph.from_edge_index([[0, 1], [2, 3]], num_nodes=4, num_users=2, test_links=[[0], [3]]),
}


@pytest.mark.parametrize("graph", SMALLEST.values(), ids=SMALLEST.keys())
def test_the_smallest_graphs(graph: Graph) -> None:
    assert titles(str(fullgnn.inspect(graph))) == TITLES


def test_user_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no graph is named"):
        run([f"out={tmp_path}/mine.json"])
    with pytest.raises(ConfigError, match=r"out=.* is a folder: give a file"):
        run(["dataset=karate", f"out={tmp_path}"])
    with pytest.raises(DataError, match="none.npz"):
        run(["dataset=npz", f"dataset.path={tmp_path}/none.npz"])
    with pytest.raises(ConfigError, match="outt"):
        run(["dataset=karate", "outt=4"])
    with pytest.raises(DataError, match="is no type of a graph"):
        fullgnn.inspect("cora")
    with pytest.raises(ConfigError, match="model"):
        fullgnn.inspect(odd_graph(), model="gcm")
