"""Graphs of DGL and datasets of OGB as Graphs, read from stand-ins with their attributes; and graphs of files."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.convert import as_graph
from tests.graph.converted import ARCS, EXPECTED, NODE, WEIGHT, data
from tests.graph.dgl_graph import DGLGraph

# DGL


NDATA = dict(feat=torch.eye(4), label=NODE % 2, train_mask=NODE < 2, val_mask=(NODE == 2).byte(), _ID=NODE)


def test_a_graph_of_dgl_keeps_its_arcs_features_labels_and_split():
    g = DGLGraph(NDATA | {"test_mask": NODE > 2})
    graph = as_graph(g)
    np.testing.assert_array_equal(graph.adjacency().toarray(), EXPECTED != 0)
    np.testing.assert_array_equal(graph.features, np.eye(4))
    assert graph.labels.tolist() == [0, 1, 0, 1] and graph.weight is None and graph.remarks == {}
    assert [np.flatnonzero(mask).tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [
        *([0, 1], [2], [3])
    ]
    assert as_graph(DGLGraph()).num_nodes == 4
    other = Graph.from_dgl(DGLGraph({"h": torch.ones(4, 2), "y": NODE}), features="h", labels="y", name="mine")
    assert other.num_features == 2 and other.num_classes == 4 and other.name == "mine"


def test_weights_of_a_graph_of_dgl_are_named():
    g = DGLGraph(edata={"w": WEIGHT[:, None], "time": NODE, "_ID": NODE})
    assert Graph.from_dgl(g).weight is None and Graph.from_dgl(g).remarks == {"unread_edge_data": 2}
    graph = Graph.from_dgl(g, edge_weight="w")
    np.testing.assert_array_equal(graph.adjacency().toarray(), EXPECTED)
    assert graph.remarks == {}
    with pytest.raises(DataError, match=r"g.edata has no 'x': pass one of its names \(time, w\)"):
        Graph.from_dgl(g, edge_weight="x")


def test_a_graph_of_dgl_with_several_types_is_refused():
    with pytest.raises(DataError, match=r"2 types of nodes and 1 of edges.*: pass dgl.to_homogeneous\(g\)"):
        as_graph(DGLGraph(ntypes=["user", "item"]))
    with pytest.raises(DataError, match="int is no DGLGraph"):
        Graph.from_dgl(3)


# OGB


class Dataset:
    """A stand-in for a dataset of OGB."""

    name = "ogbn-mine"

    def __init__(self, first, **split):
        self.first, self.split = first, dict(train=NODE[:2], valid=NODE[2:3], test=NODE[3:]) | split

    def __getitem__(self, number):
        assert number == 0
        return self.first

    def get_idx_split(self):
        return self.split


OGB = dict(edge_index=ARCS.numpy(), node_feat=np.eye(4, dtype=np.float32), edge_feat=None, num_nodes=4)
LABELS = np.array([[0.0], [1], [0], [np.nan]])


@pytest.mark.parametrize(
    "first",
    [
        (OGB, LABELS),
        data(y=torch.tensor(LABELS), train_mask=None, val_mask=None, test_mask=None),  # of PygNodePropPredDataset
        (DGLGraph({"feat": torch.eye(4)}), torch.tensor(LABELS)),  # of DglNodePropPredDataset
    ],
)
def test_a_dataset_of_ogb_has_its_split(first):
    graph = as_graph(Dataset(first))
    np.testing.assert_array_equal(graph.adjacency().toarray(), EXPECTED != 0)
    np.testing.assert_array_equal(graph.features, np.eye(4))
    assert graph.labels.tolist() == [0, 1, 0, -1] and graph.name == "ogbn-mine"
    assert graph.train_mask.tolist() == [True, True, False, False] and graph.val_mask.tolist() == [False] * 2 + [
        *(True, False)
    ]
    assert not graph.test_mask.any() and graph.remarks == {"unlabelled_split_nodes": 1}


OF_KINDS = dict(
    edge_index_dict={("a", "writes", "p"): np.zeros((2, 3), int), ("p", "cites", "p"): OGB["edge_index"]},
    node_feat_dict={"p": OGB["node_feat"]},
    edge_feat_dict={},
    num_nodes_dict={"a": 5, "p": 4},
)
PYG = dict(x_dict={"p": torch.eye(4)}, y_dict={"p": torch.tensor(LABELS)}, edge_index_dict=OF_KINDS["edge_index_dict"])


@pytest.mark.parametrize(
    "first", [(OF_KINDS, {"p": LABELS}), SimpleNamespace(num_nodes_dict=OF_KINDS["num_nodes_dict"], **PYG)]
)
def test_of_several_kinds_of_nodes_those_with_labels_are_kept(first):
    dataset = Dataset(first)
    dataset.split = {part: {"p": ids} for part, ids in dataset.split.items()}
    graph, expected = as_graph(dataset), as_graph(Dataset((OGB, LABELS)))
    for name in ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(expected, name))
    assert graph.remarks == {"unlabelled_split_nodes": 1, "other_relations": 3, "other_kinds": 5}
    assert as_graph((OF_KINDS, {"p": LABELS})).num_edges == expected.num_edges


def test_a_pair_of_ogb_has_no_split_and_weights_on_demand():
    of_edges = np.stack([np.ones(4), WEIGHT.numpy()], axis=1)
    pair = OGB | {"edge_feat": of_edges, "node_feat": None}, np.eye(4, dtype=int)[:, :2]
    graph = as_graph(pair)
    assert graph.num_features == 0 and graph.labels.shape == (4, 2) and not graph.train_mask.any()
    assert graph.weight is None and graph.remarks["unread_edge_features"] == 2 and graph.name == "graph"
    np.testing.assert_array_equal(Graph.from_ogb(pair, edge_weight=1).adjacency().toarray(), EXPECTED)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Dataset((OGB, LABELS), test=[0]), "the split of OGB: test has the node 0, which another part has too"),
        (Dataset((OGB, LABELS), test=[4]), "the split of OGB: test has the node 4, and there are the nodes 0 to 3"),
        (Dataset((OGB, LABELS + 0.5)), "labels of OGB: label 0 of node 0 is 0.5, and classes"),
        (Dataset(3), "int is no graph of OGB"),
        (3, "int is no dataset of OGB"),
        (({"edge_index": ARCS}, LABELS), "the graph of OGB has no 'num_nodes'"),
        ((OF_KINDS, {"a": LABELS}), "1 kinds of nodes have labels, and 0 relations join nodes of such a kind"),
        ((OF_KINDS, {"a": LABELS, "p": LABELS}), "2 kinds of nodes have labels"),
        ((OF_KINDS, LABELS), "0 kinds of nodes have labels"),
    ],
)
def test_mistakes_in_a_dataset_of_ogb(value, message):
    with pytest.raises(DataError, match=message) as error:
        Graph.from_ogb(value)
    assert "\n" not in str(error.value)


def test_weights_of_ogb_are_in_a_column_that_is_there():
    with pytest.raises(DataError, match="edge_weight is 0, and the edges of the graph have 0 numbers each"):
        Graph.from_ogb((OGB, LABELS), edge_weight=0)


# Files


def test_load_reads_what_save_has_written(fields, tmp_path):
    graph = Graph.from_edge_index(ARCS, edge_weight=WEIGHT, **fields(4, num_classes=3), name="kept")
    graph.save(tmp_path / "a graph")
    loaded = Graph.load(str(tmp_path / "a graph"))
    for name in ("indptr", "indices", "weight", "features", "labels", "train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(graph, name))
    assert (loaded.num_classes, loaded.name) == (3, "kept")


def test_load_reads_published_files(tmp_path):
    masks = {f"{name}_masks": np.eye(2, 4, k, dtype=bool) for k, name in enumerate(("train", "val", "test"))}
    arrays = dict(node_features=np.eye(4), node_labels=np.arange(4) % 2, edges=ARCS.T.numpy())
    np.savez(tmp_path / "mine_directed.npz", **arrays, **masks)
    graph = Graph.load(tmp_path / "mine_directed.npz")
    np.testing.assert_array_equal(graph.adjacency().toarray(), EXPECTED != 0)
    assert graph.train_mask.tolist() == [True, False, False, False] and graph.name == "mine_directed"
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(DataError, match="other.npz has no array 'adj_"):
        Graph.load(tmp_path / "other.npz")
    with pytest.raises(DataError, match="no file .*absent.npz"):
        Graph.load(tmp_path / "absent.npz")
