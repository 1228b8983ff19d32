"""Reddit as DGL publishes it, in files written here; PyTorch Geometric's reader is the judge."""

import numpy as np
import pytest

from fullgnn.errors import DataError
from fullgnn.graph import load_dataset
from tests.graph.datasets.published import assert_is_pyg, pyg_datasets
from tests.graph.datasets.reddit import NUM_NODES


@pytest.fixture
def load(compose_dataset):
    return lambda raw, **overrides: load_dataset(compose_dataset("reddit", path=str(raw), **overrides))


def test_equals_the_reader_of_pyg(write, load, tmp_path):
    graph = load(write())
    assert_is_pyg(graph, pyg_datasets().Reddit(tmp_path)[0])
    assert graph.remarks["merged_arcs"] == 200 - graph.num_edges > 0 and "zero_arcs" not in graph.remarks
    assert graph.features.dtype == np.float32 and graph.name == "reddit"


def test_nodes_without_a_label_are_in_no_mask(write, load):
    graph = load(write(data=dict(label=np.r_[-1, np.arange(NUM_NODES - 1) % 4])))
    assert not graph.train_mask[0] and graph.train_mask.sum() == 19
    assert graph.remarks["unlabelled_split_nodes"] == 1


@pytest.mark.parametrize(
    ("data", "graph", "message"),
    [
        (dict(label=np.arange(39)), {}, "reddit_data.npz: labels has shape"),
        (dict(node_types=np.ones(39, int)), {}, "reddit_data.npz: array 'node_types' has shape .39,., and .* 40 nodes"),
        (dict(node_types=np.ones(40)), {}, "reddit_data.npz: array 'node_types' has dtype float64"),
        (dict(feature=np.full((40, 1), 1e300)), {}, "reddit_data.npz: features hold NaN or Inf"),
        (dict(feature=np.array([["a"]] * 40)), {}, "reddit_data.npz: features has dtype <U1"),
        ({}, dict(row=np.full(200, 40)), "reddit_graph.npz: an arc has the node 40, and there are the nodes 0 to 39"),
        ({}, dict(row=np.zeros(7, int)), "reddit_graph.npz: there are 7 sources of arcs, and 200 targets"),
        ({}, dict(col=np.zeros((200, 1), int)), "reddit_graph.npz: the targets of the arcs are no list"),
        ({}, dict(format=np.array(b"csr")), "reddit_graph.npz holds no square COO matrix"),
        ({}, dict(shape=np.array([40, 41])), "reddit_graph.npz holds no square COO matrix"),
        ({}, dict(shape=np.array([10**12] * 2)), "reddit_graph.npz has 1000000000000 nodes"),
        ({}, dict(shape=np.array([40])), "no COO matrix .shape has 1 numbers"),
    ],
)
def test_wrong_contents(data, graph, message, write, load):
    raw = write(data, graph)
    with pytest.raises(DataError, match=message) as error:
        load(raw)
    assert "\n" not in str(error.value) and str(raw) in str(error.value)


def test_a_missing_file(write, load):
    raw = write()
    (raw / "reddit_graph.npz").unlink()
    with pytest.raises(DataError, match="no file .*reddit_graph.npz: set dataset.path .*https://data.dgl.ai"):
        load(raw)
