"""load_dataset, the YAMLs, and the datasets that need no file."""

import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args, get_origin

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, check_dataset, dataset_files, load_dataset
from fullgnn.graph.datasets import SPLIT_KEYS, download
from tests.graph.symmetry import is_symmetric

CHOICES = sorted(path.stem for path in (Path(__file__).parents[3] / "conf" / "dataset").glob("*.yaml"))
CHOICES.remove("base")
COMMON = {"name", "symmetrize", *SPLIT_KEYS}


@pytest.mark.parametrize("choice", CHOICES)
def test_yaml_keys_are_the_signature(choice, compose_dataset):
    node = compose_dataset(choice)
    load = import_module(node["_target_"].removesuffix(".load")).load
    parameters = inspect.signature(load).parameters
    assert set(node) - {"_target_"} - COMMON == set(parameters) - COMMON
    assert COMMON <= set(node)
    younger = {"contents", "scale", "split"}  # than checkpoints that must still be read
    assert {name for name, parameter in parameters.items() if parameter.default is not parameter.empty} <= younger
    for key, parameter in parameters.items():
        allowed = [get_origin(kind) or kind for kind in get_args(parameter.annotation) or [parameter.annotation]]
        also = [*([int] if float in allowed else []), *([str] if list in allowed else [])]  # a text is a list of one
        assert isinstance(node[key], (*allowed, *also)), key


def test_name_and_symmetrize_are_common_keys(compose_dataset):
    node = compose_dataset("rmat", num_nodes=50, num_edges=300, symmetrize=True, name="mine")
    graph = load_dataset(node)
    assert graph.name == "mine" and is_symmetric(graph.adjacency())
    assert load_dataset(compose_dataset("karate", name="club")).name == "club"  # karate.load has no parameter ``name``
    assert load_dataset(compose_dataset("karate", name=None)).name == "karate"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(nodes=3), "unexpected keyword argument 'nodes'; its keys are train_per_class, num_val, seed"),
        (dict(_target_="fullgnn.graph.datasets.karat.load"), "cannot be imported"),
        (dict(_target_="fullgnn.graph.datasets.karate.lode"), "cannot be imported"),
        (dict(_target_=None), "cannot be imported"),
        (dict(seed=-1), "dataset.seed=-1 is negative"),
        (dict(train_per_class=18), "train_per_class=18: choose 1 to 17"),
    ],
)
def test_mistakes_in_the_node(changes, message, compose_dataset):
    with pytest.raises(ConfigError, match=message):
        load_dataset(compose_dataset("karate", **changes))


def test_missing_key(compose_dataset):
    node = compose_dataset("karate")
    del node["seed"]
    with pytest.raises(ConfigError, match="missing a required argument: 'seed'"):
        load_dataset(node)


def test_karate(compose_dataset):
    graph = load_dataset(compose_dataset("karate"))
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (34, 156, 2)
    assert np.bincount(graph.labels).tolist() == [17, 17]
    assert [int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [8, 8, 18]
    np.testing.assert_array_equal(graph.features, np.eye(34))
    assert is_symmetric(graph.adjacency()) and graph.weight is None


def test_digits(compose_dataset):
    graph = load_dataset(compose_dataset("digits", symmetrize=False))
    pixels, labels = load_digits(return_X_y=True)
    np.testing.assert_array_equal(graph.labels, labels)
    assert graph.features.min() == 0 and graph.features.max() == 1 and graph.features.shape == (1797, 64)
    neighbor = graph.indices.reshape(1797, 10)  # i's row lists i's neighbours
    distance = np.sqrt(((pixels[:, None] - pixels[neighbor]) ** 2).sum(axis=-1))
    nearest = NearestNeighbors(n_neighbors=10).fit(pixels).kneighbors()[0]  # without the node itself; ties in any order
    np.testing.assert_allclose(np.sort(distance, axis=1), nearest, rtol=1e-12)
    assert (neighbor != np.arange(1797)[:, None]).all()
    both = load_dataset(compose_dataset("digits"))
    assert is_symmetric(both.adjacency()) and both.num_edges > graph.num_edges
    row = np.repeat(np.arange(1797), np.diff(both.indptr))
    assert (labels[row] == labels[both.indices]).mean() > 0.9
    with pytest.raises(ConfigError, match="num_neighbors=0"):
        load_dataset(compose_dataset("digits", num_neighbors=0))


def test_synthetic_counts_follow_the_scales(compose_dataset):
    sizes = dict(num_nodes=4000, num_edges=84_000, num_features=5)
    full = load_dataset(compose_dataset("synthetic", **sizes))
    assert (full.num_nodes, full.num_edges, full.num_features, full.num_classes) == (4000, 80_000, 5, 10)
    assert is_symmetric(full.adjacency()) and full.weight is None
    half = load_dataset(compose_dataset("synthetic", **sizes, scale=0.5))
    assert (half.num_nodes, half.num_edges) == (2000, 40_000)
    thin = load_dataset(compose_dataset("synthetic", **sizes, scale=0.5, degree_scale=0.1))
    assert (thin.num_nodes, thin.num_edges) == (2000, 4000)
    again = load_dataset(compose_dataset("synthetic", **sizes))
    np.testing.assert_array_equal(again.indices, full.indices)
    np.testing.assert_array_equal(again.features, full.features)


def test_synthetic_neighbourhoods_say_more_than_features(compose_dataset):
    graph = load_dataset(compose_dataset("synthetic"))

    def nearest_centre_accuracy(x):
        x = x - x[graph.train_mask].mean(axis=0)
        centres = np.stack([x[graph.train_mask & (graph.labels == c)].mean(axis=0) for c in range(graph.num_classes)])
        guess = (2 * x @ centres.T - (centres**2).sum(axis=1)).argmax(axis=1)
        return (guess == graph.labels)[graph.test_mask].mean()

    mean = graph.adjacency() @ graph.features / np.maximum(np.diff(graph.indptr), 1)[:, None]
    assert nearest_centre_accuracy(graph.features) < 0.6
    assert nearest_centre_accuracy(mean) > 0.85


@pytest.mark.parametrize(
    ("choice", "nodes", "edges", "features", "classes"),
    [
        ("reddit-like", 232_965, 114_848_857, 602, 41),
        ("proteins-like", 132_534, 79_255_038, 602, 8),
        ("archaea-like", 1_644_228, 206_436_882, 602, 10),
        ("products-like", 2_449_029, 126_167_181, 100, 47),
    ],
)
def test_presets(choice, nodes, edges, features, classes, compose_dataset):
    node = compose_dataset(choice)
    assert (edges - nodes) % 2 == 0  # no rounding at full size: exactly edges - nodes entries
    assert (node["num_nodes"], node["num_edges"]) == (nodes, edges)
    graph = load_dataset({**node, "scale": 0.005, "degree_scale": 0.05})
    assert graph.num_nodes == round(0.005 * nodes) and graph.name == choice
    assert abs(graph.num_edges - (edges - nodes) * 0.005 * 0.05) <= 1
    assert (graph.num_features, graph.num_classes) == (features, classes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(scale=0.0), "must both be above 0"),
        (dict(degree_scale=-1.0), "must both be above 0"),
        (dict(scale=0.0005), "leaves 5 nodes for 10 classes: raise dataset.scale"),
        (dict(degree_scale=100.0), "lower degree_scale"),
        (dict(train_fraction=0.0), "no split"),
        (dict(num_edges=10), "make no graph"),
    ],
)
def test_synthetic_mistakes(changes, message, compose_dataset):
    with pytest.raises((ConfigError, DataError), match=message):
        load_dataset(compose_dataset("synthetic", **changes))


def test_rmat(compose_dataset):
    graph = load_dataset(compose_dataset("rmat", num_nodes=1000, num_edges=15_001))
    assert isinstance(graph, Graph) and (graph.num_nodes, graph.num_edges) == (1000, 15_001)
    assert not is_symmetric(graph.adjacency()) and not graph.adjacency().diagonal().any()


# The files of a dataset.

PARTS = ("y", "tx", "ty", "allx", "ally", "graph", "test.index")


@pytest.mark.parametrize(
    ("choice", "overrides", "names"),
    [
        ("synthetic", {}, []),
        ("reddit-like", {}, []),
        ("rmat", {}, []),
        ("digits", {}, []),
        ("karate", {}, []),
        ("cora", dict(root="ROOT"), [f"ind.cora.{part}" for part in PARTS]),  # absent, and downloaded by ``load``
        ("npz", dict(root="ROOT", name="cora_full"), ["cora_full.npz"]),  # as well
        ("npz", dict(path="ROOT/mine.npz"), ["mine.npz"]),
        ("blogcatalog", dict(path="ROOT"), ["nodes.csv", "groups.csv", "edges.csv", "group-edges.csv"]),
        ("interactions", dict(train_path="ROOT/train.txt", test_path="ROOT/b.gz"), ["train.txt", "b.gz"]),
        ("edge_list", dict(path="ROOT/train.txt"), ["train.txt"]),
        ("triples", dict(path="ROOT/b.gz"), ["b.gz"]),
        ("metis_graph", dict(path="ROOT/b.gz"), ["b.gz"]),
        ("matrix_market", dict(path="ROOT/b.gz"), ["b.gz"]),
        ("graphml", dict(path="ROOT/b.gz"), ["b.gz"]),
        ("linqs", dict(path="ROOT"), ["d.content", "d.cites.gz"]),
        ("musae", dict(path="ROOT", name="d"), ["d_edges.csv", "musae_d_target.csv", "d.json"]),
        ("musae", dict(path="ROOT", name="e"), ["e.npz"]),
    ],
)
def test_the_files_of_a_dataset(choice, overrides, names, compose_dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_download", lambda *_: pytest.fail("a file is downloaded"))
    asu = ("nodes.csv", "groups.csv", "edges.csv", "group-edges.csv")
    of_texts = ("d.content", "d.cites.gz", "d_edges.csv", "musae_d_target.csv", "d.json", "e.npz")
    for name in ("mine.npz", *asu, "train.txt", "b.gz", *of_texts):
        (tmp_path / name).touch()
    overrides = {key: value.replace("ROOT", str(tmp_path)) for key, value in overrides.items()}
    node = compose_dataset(choice, **overrides)
    assert dataset_files(node) == [tmp_path / name for name in names]
    check_dataset(node)


@pytest.mark.parametrize("choice", CHOICES)
def test_every_dataset_of_fullgnn_says_which_files_it_reads(choice, compose_dataset):
    named = {"npz": "cora", "heterophilous": "tolokers"}
    node = compose_dataset(choice, **(dict(name=named[choice]) if choice in named else {}))
    try:
        assert isinstance(dataset_files(node), list)
    except DataError as error:
        assert "no file" in str(error)


@pytest.mark.parametrize(
    ("choice", "overrides", "message"),
    [
        ("planetoid", dict(name="mine", root="ROOT"), "unknown Planetoid dataset 'mine'"),
        ("npz", dict(path="ROOT/missing.npz"), "no file .*missing.npz: set dataset.path"),
        ("npz", dict(name="mine", root="ROOT"), "no file .*mine.npz, and 'mine' is not public"),
        ("blogcatalog", dict(path="ROOT"), "no file .*nodes.csv: set dataset.path"),
        ("interactions", dict(train_path="ROOT/train.txt", test_path="ROOT/test.txt"), "no file .*train.txt"),
    ],
)
def test_a_missing_file_is_refused_as_by_the_loader(choice, overrides, message, compose_dataset, tmp_path):
    overrides = {key: value.replace("ROOT", str(tmp_path)) for key, value in overrides.items()}
    node = compose_dataset(choice, **overrides)
    messages = []
    for function in (check_dataset, dataset_files, load_dataset):
        with pytest.raises(DataError, match=message) as refused:
            function(node)
        messages.append(str(refused.value))
    assert len(set(messages)) == 1 and "\n" not in messages[0]


@pytest.mark.parametrize(
    "source",
    [
        "",  # no function ``files``
        "from importlib.resources import files\n",
        "def files(folder): raise AssertionError\n",  # it has a key that the dataset does not have
    ],
)
def test_a_loader_need_not_say_which_files_it_reads(source, tmp_path, monkeypatch):
    (tmp_path / "of_a_user.py").write_text(f"{source}def load(num_nodes: int): raise AssertionError\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "of_a_user", raising=False)
    node = {"_target_": "of_a_user.load", "name": "mine", "symmetrize": False, "num_nodes": 3}
    assert dataset_files(node) is None
    check_dataset(node)


@pytest.mark.parametrize("path", ["a\0b", "a" * 4000, "~nobody_of_this_name/x"])
def test_a_path_that_no_system_has_is_named(path, compose_dataset):
    with pytest.raises(DataError, match="dataset.path=.* cannot be used") as caught:
        check_dataset(compose_dataset("npz") | {"path": path})
    assert len(str(caught.value)) < 600 and "\n" not in str(caught.value)
