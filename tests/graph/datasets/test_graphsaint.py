"""The layout of GraphSAINT, in files written here; PyTorch Geometric's readers of Flickr and Yelp are the judges."""

import json

import numpy as np
import pytest
import scipy.sparse

from fullgnn.errors import DataError
from fullgnn.graph import load_dataset
from fullgnn.graph.datasets import graphsaint
from tests.graph.datasets.published import assert_is_pyg, pyg_datasets

NUM_NODES = 30
ROLE = {"tr": list(range(12)), "va": [12, 14, 13], "te": list(range(15, 25))}
CLASSES = {str(node): node * node % 5 for node in reversed(range(NUM_NODES))}
SEVERAL = {str(node): [node % 2, int(node > 9), 0] for node in reversed(range(NUM_NODES))}


@pytest.fixture
def write(tmp_path):
    """Writes the four files, some of them changed, to a folder ``raw``."""

    def build(class_map, role=ROLE, features=None, **changes):
        rng = np.random.default_rng(0)
        raw = tmp_path / "raw"
        raw.mkdir(exist_ok=True)
        adj = scipy.sparse.csr_matrix(rng.random((NUM_NODES, NUM_NODES)) < 0.2, dtype=np.float64)
        adj.data[:2] = 7, 0  # every entry counts 1, whatever it holds
        for row in range(NUM_NODES):  # the indices of a row in any order
            row = slice(adj.indptr[row], adj.indptr[row + 1])
            adj.indices[row] = adj.indices[row][::-1]
        arrays = {part: getattr(adj, part) for part in ("data", "indices", "indptr", "shape")}
        np.savez(raw / "adj_full.npz", **(arrays | changes))
        np.save(raw / "feats.npy", rng.standard_normal((NUM_NODES, 4)) if features is None else features)
        (raw / "role.json").write_text(json.dumps(role))
        (raw / "class_map.json").write_text(class_map if isinstance(class_map, str) else json.dumps(class_map))
        return raw

    return build


@pytest.fixture
def load(compose_dataset):
    return lambda raw, **overrides: load_dataset(compose_dataset("graphsaint", path=str(raw), **overrides))


@pytest.mark.parametrize(("name", "class_map", "columns"), [("Flickr", CLASSES, None), ("Yelp", SEVERAL, 3)])
def test_equals_the_reader_of_pyg(name, class_map, columns, write, load, tmp_path, monkeypatch):
    monkeypatch.setattr(graphsaint, "ROWS_AT_ONCE", 7)
    graph = load(write(class_map), name=name)
    assert_is_pyg(graph, getattr(pyg_datasets(), name)(tmp_path)[0])
    assert graph.labels.shape[1:] == (() if columns is None else (columns,)) and graph.remarks == {}
    assert graph.name == name and graph.features.dtype == np.float32


def test_a_node_without_a_label_is_in_no_mask(write, load, tmp_path):
    given = {key: value for key, value in CLASSES.items() if key not in ("3", "13")}
    graph = load(write(given))
    theirs = pyg_datasets().Flickr(tmp_path)[0]
    np.testing.assert_array_equal(graph.labels, theirs.y.numpy())
    assert graph.labels[[3, 13]].tolist() == [-1, -1] and graph.remarks == {"unlabelled_split_nodes": 2}
    assert not (graph.train_mask[3] or graph.val_mask[13])
    assert graph.train_mask.sum() == 11 and graph.val_mask.sum() == 2


def test_features_of_float32_are_mapped(write, load):
    features = np.arange(4 * NUM_NODES, dtype=np.float32).reshape(NUM_NODES, 4)
    raw = write(CLASSES, features=features)
    graph = load(raw)
    np.testing.assert_array_equal(graph.features, features)
    np.save(raw / "feats.npy", np.asfortranarray(features))
    np.testing.assert_array_equal(load(raw).features, features)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(class_map={**CLASSES, "30": 1}), "class_map.json has the node 30, and there are the nodes 0 to 29"),
        (dict(class_map={**CLASSES, "x": 1}), "class_map.json has a key that is no node .*'x'"),
        (dict(class_map={**CLASSES, "07": 1}), "class_map.json has a node twice"),
        (dict(class_map={**CLASSES, "7": "music"}), "class_map.json: the labels are no classes"),
        (dict(class_map={**CLASSES, "7": 1.5}), "class_map.json: the labels are no classes"),
        (dict(class_map={**CLASSES, "7": None}), "class_map.json: the labels are no classes"),
        (dict(class_map={**CLASSES, "7": [1, 0]}), "class_map.json: the labels are no numbers"),
        (dict(class_map={**SEVERAL, "7": [1, 0]}), "class_map.json: the labels are no numbers"),
        (dict(class_map={**SEVERAL, "7": [1, 0, 2]}), "class_map.json: labels of 3 columns hold 2"),
        (dict(class_map={}), "class_map.json has no node"),
        (dict(class_map="[1, 2]"), "class_map.json holds no mapping"),
        (dict(class_map='{"0": '), "class_map.json is no JSON"),
        (dict(class_map='{"0": ' + "[" * 99 + "]" * 99 + "}"), "class_map.json is nested more than"),
        (dict(role={"tr": [0], "va": [1]}), "role.json has no 'te'"),
        (dict(role={**ROLE, "te": [0]}), "role.json: test has the node 0, which another part has too"),
        (dict(role={**ROLE, "te": [30]}), "role.json: test has the node 30, and there are the nodes 0 to 29"),
        (dict(role={**ROLE, "te": ["29"]}), "role.json: the nodes of test are no list of integers"),
        (dict(role={**ROLE, "te": 29}), "role.json: the nodes of test are no list of integers"),
        (dict(features=np.ones((29, 4))), "feats.npy has the dtype float64 and the shape .29, 4., and takes numbers"),
        (dict(features=np.full((30, 4), np.nan)), "features hold NaN or Inf"),
        (dict(indices=np.zeros(3, int)), r"adj_full.npz: \* is no CSR matrix"),
        (dict(shape=np.array([30, 31])), "adj_full.npz has a matrix of shape .30, 31."),
    ],
)
def test_wrong_contents(changes, message, write, load):
    raw = write(**({"class_map": CLASSES} | changes))
    with pytest.raises(DataError, match=message) as error:
        load(raw)
    assert "\n" not in str(error.value) and str(raw) in str(error.value)


def test_a_missing_file(write, load):
    raw = write(CLASSES)
    (raw / "role.json").unlink()
    with pytest.raises(DataError, match="no file .*role.json: set dataset.path"):
        load(raw)
