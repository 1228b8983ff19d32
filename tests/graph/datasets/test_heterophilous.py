"""The npz layout of Platonov et al.: published files by their counts, and PyTorch Geometric's reader as the judge."""

import shutil

import numpy as np
import pytest

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import check_dataset, load_dataset
from fullgnn.graph.datasets import download
from tests.graph.datasets.published import assert_has_arcs, assert_is_pyg, pyg_datasets

NUM_NODES = 20


@pytest.fixture
def write(tmp_path):
    """Writes a file in this layout, some arrays changed."""

    def build(file="mine.npz", drop=(), **changes):
        rng = np.random.default_rng(0)
        order = np.stack([rng.permutation(NUM_NODES) for _ in range(3)])
        arrays = dict(
            node_features=rng.standard_normal((NUM_NODES, 5)).astype(np.float32),
            node_labels=np.arange(NUM_NODES) % 3,
            edges=np.array([[0, 1], [2, 1], [1, 2], [3, 3], [19, 4], [19, 4]]),
            train_masks=order < 10,
            val_masks=(order >= 10) & (order < 15),
            test_masks=order >= 15,
        )
        np.savez(tmp_path / file, **{key: value for key, value in (arrays | changes).items() if key not in drop})
        return tmp_path / file

    return build


@pytest.fixture
def load(compose_dataset):
    return lambda choice="heterophilous", **overrides: load_dataset(compose_dataset(choice, **overrides))


@pytest.mark.parametrize("split", [0, 7])
def test_tolokers_equals_the_reader_of_pyg(split, shared_data, load, tmp_path):
    raw = tmp_path / "tolokers" / "raw"
    raw.mkdir(parents=True)
    shutil.copy(shared_data / "heterophilous" / "tolokers.npz", raw)
    graph = load("tolokers", root=str(raw), split=split)
    assert_is_pyg(graph, pyg_datasets().HeterophilousGraphDataset(tmp_path, "Tolokers")[0], split)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (11_758, 1_038_000, 10)
    assert np.bincount(graph.labels).tolist() == [9192, 2566] and graph.remarks == {}


def test_chameleon_has_its_published_counts(shared_data, load):
    root = str(shared_data / "heterophilous")
    graph = load("chameleon", root=root, split=9)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (2277, 36_101, 2325, 5)
    assert int(graph.adjacency(bool).diagonal().sum()) == 50 and not graph.is_symmetric
    assert graph.symmetrized().num_edges == 2 * 31_371 + 50
    with np.load(shared_data / "heterophilous" / "chameleon_directed.npz") as arrays:
        assert_has_arcs(graph, np.unique(arrays["edges"].T, axis=1))
        for name in ("train", "val", "test"):
            np.testing.assert_array_equal(getattr(graph, f"{name}_mask"), arrays[f"{name}_masks"][9])


def test_an_undirected_file_has_each_edge_once_and_a_directed_one_has_arcs(write, load):
    once = np.array([[0, 1], [1, 2], [2, 1], [3, 3], [19, 4]]).T
    both = np.unique(np.concatenate([once, once[::-1]], axis=1), axis=1)
    directed, undirected = str(write("mine_directed.npz")), str(write())
    assert_has_arcs(load(path=undirected), both)
    assert_has_arcs(load(path=undirected, directed=True), once)
    assert_has_arcs(load(path=directed), once)
    assert_has_arcs(load(path=directed, directed=False), both)
    assert load(path=directed).remarks["merged_arcs"] == 1


def test_the_split_is_chosen_or_the_first_one_is_used_with_a_remark(write, load):
    path = str(write())
    with np.load(path) as arrays:
        for split in (None, 0, 2):
            graph = load(path=path, split=split)
            np.testing.assert_array_equal(graph.test_mask, arrays["test_masks"][split or 0])
            assert graph.remarks.get("first_of_splits", 0) == (3 if split is None else 0)


@pytest.mark.parametrize("split", [3, -1])
def test_a_split_that_is_not_there_is_refused_before_the_graph_is_read(split, write, compose_dataset):
    node = compose_dataset("heterophilous", path=str(write()), split=split)
    for function in (check_dataset, load_dataset):
        with pytest.raises(ConfigError, match=f"dataset.split={split}: .*mine.npz has the splits 0 to 2"):
            function(node)


@pytest.mark.parametrize(
    ("drop", "changes", "message"),
    [
        (["edges"], {}, "has no array 'edges', .*: the layout of heterophilous-graphs has node_features"),
        ([], dict(edges=np.zeros((2, 7), int)), r"array 'edges' has shape \(2, 7\), and takes \(E, 2\)"),
        ([], dict(edges=np.zeros((7, 2))), "array 'edges' has dtype float64, and takes integers"),
        ([], dict(edges=np.array([[0, 20]])), "node id 20 in edge_index is out of range"),
        ([], dict(node_labels=np.arange(7)), "labels has shape"),
        ([], dict(node_features=np.full((NUM_NODES, 1), np.inf)), "features hold NaN or Inf"),
        ([], dict(train_masks=np.zeros(NUM_NODES, bool)), "array 'train_masks' has shape .*, and takes a row for each"),
        ([], dict(test_masks=np.zeros((2, NUM_NODES), bool)), "array 'test_masks' has shape .*, and takes a row for"),
        ([], dict(test_masks=np.ones((3, NUM_NODES), bool)), "train_mask and test_mask overlap"),
    ],
)
def test_wrong_contents(drop, changes, message, write, load):
    with pytest.raises(DataError, match=message) as error:
        load(path=str(write(drop=drop, **changes)))
    assert "\n" not in str(error.value) and "mine.npz" in str(error.value)


def test_no_file(load, tmp_path, monkeypatch):
    def offline(url, timeout):
        raise OSError(f"no route to {url}")

    monkeypatch.setattr(download.urllib.request, "urlopen", offline)
    with pytest.raises(DataError, match="yandex-research/heterophilous-graphs/raw/main/data/roman_empire.npz"):
        load("roman-empire", root=str(tmp_path))
    with pytest.raises(DataError, match="no file .*/mine.npz, and 'mine' is not public: .*roman_empire"):
        load(name="mine", root=str(tmp_path))
    with pytest.raises(DataError, match="no file .*absent.npz: set dataset.path"):
        load(path=str(tmp_path / "absent.npz"))
    with pytest.raises(ConfigError, match="needs a file: set dataset.path"):
        load()


def test_a_graph_has_the_name_of_its_file_or_the_one_that_is_given(write, load):
    file = write()
    assert load(path=str(file)).name == file.stem == "mine"
    assert load(path=str(file), name="yours").name == "yours" and load("tolokers", path=str(file)).name == "tolokers"


def test_the_nodes_are_split_anew_by_a_method(write, load, compose_dataset):
    graph = load(path=str(write()), split="stratified", train_fraction=0.5)
    assert graph.train_mask.sum() + graph.val_mask.sum() + graph.test_mask.sum() == NUM_NODES
    assert graph.remarks["stratified_split_nodes"] == NUM_NODES and "first_of_splits" not in graph.remarks
    node = compose_dataset("heterophilous", path=str(write()), split="stratifed")
    for function in (check_dataset, load_dataset):
        with pytest.raises(ConfigError, match="dataset.split=stratifed"):
            function(node)
