"""Graphs of other libraries as Graphs. PyTorch Geometric is optional, so most tests read a stand-in for its Data."""

import warnings
from types import SimpleNamespace

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch

from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.convert import as_graph
from tests.graph.converted import ARCS, EXPECTED, NODE, WEIGHT, data


def test_a_pyg_data_keeps_its_arcs_features_labels_and_split():
    graph = Graph.from_pyg(data(), name="mine", num_classes=3)
    np.testing.assert_array_equal(graph.adjacency().toarray(), EXPECTED != 0)
    np.testing.assert_array_equal(graph.features, np.eye(4))
    assert graph.labels.tolist() == [0, 1, 0, 1] and graph.num_classes == 3 and graph.name == "mine"
    assert [np.flatnonzero(mask).tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [
        *([0, 1], [2], [3])
    ]
    assert graph.weight is None


@pytest.mark.parametrize(
    "given",
    [
        dict(edge_weight=WEIGHT),
        dict(edge_weight=WEIGHT.int()),  # weights by their name
        dict(edge_attr=WEIGHT),
        dict(edge_attr=WEIGHT[:, None]),
        dict(edge_attr=WEIGHT.bfloat16()),
        dict(edge_attr=WEIGHT.half()),
        dict(edge_weight=WEIGHT, edge_attr=torch.ones(4, 3)),
        dict(edge_weight=WEIGHT, edge_attr=2 * WEIGHT.long()),
    ],
)
def test_weights_of_a_pyg_data(given):
    graph = Graph.from_pyg(data(**given))
    np.testing.assert_array_equal(graph.adjacency().toarray(), EXPECTED)
    assert graph.remarks == ({} if "edge_weight" in given else {"edge_attr_weights": 4})


def test_edge_attributes_of_several_columns_are_not_read():
    graph = Graph.from_pyg(data(edge_attr=torch.ones(4, 3, dtype=torch.long)))
    assert graph.weight is None and graph.remarks == {"unread_edge_attr": 3}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_integer_edge_attributes_are_weights_only_if_that_is_said(dtype, shape):
    """Relations 0, 1, 2, 2: as weights they would delete the arc of type 0."""
    given = data(edge_attr=torch.tensor([0, 1, 2, 2]).to(dtype).reshape(shape))
    for make in (Graph.from_pyg, as_graph):
        with pytest.raises(DataError, match="edge_attr holds .* numbers, which may be relations") as error:
            make(given)
        message = str(error.value)
        assert "edge_weight=None" in message and "edge_weight=data.edge_attr" in message and "\n" not in message
    plain = Graph.from_pyg(given, edge_weight=None)
    assert plain.weight is None and plain.num_edges == 4 and plain.remarks == {}
    weighted = Graph.from_pyg(given, edge_weight=given.edge_attr)
    assert weighted.num_edges == 3 and weighted.remarks == {"zero_arcs": 1}
    np.testing.assert_array_equal(Graph.from_pyg(given, edge_weight=WEIGHT[:, None]).adjacency().toarray(), EXPECTED)


def test_a_pyg_data_of_edges_alone():
    graph = Graph.from_pyg(SimpleNamespace(edge_index=ARCS, num_nodes=6))
    assert repr(graph) == "Graph(graph: 6 nodes, 4 stored edges, no features, no labels, no split)"
    with pytest.raises(DataError, match="pass features or num_nodes"):
        Graph.from_pyg(SimpleNamespace(edge_index=ARCS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(edge_index=None), "has no edge_index and no adj_t: set one of them"),
        (dict(edge_types=[("user", "likes", "item")]), r"pass data.to_homogeneous\(\)"),
        (
            dict(train_mask=(NODE < 2)[:, None].repeat(1, 10)),
            r"train_mask has 10 columns, a split each: .* as in Graph.from_pyg\(data, split=0\)",
        ),
        (dict(y=torch.tensor([1])), r"labels has shape \(1,\) but the graph has 4 nodes"),
        (dict(edge_weight=WEIGHT[:2]), "edge_weight has shape"),
    ],
)
def test_mistakes_in_a_pyg_data(changes, message):
    with pytest.raises(DataError, match=message) as error:
        as_graph(data(**changes))
    assert "\n" not in str(error.value)


def test_real_data_of_pyg():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch_geometric warns of extensions that are not installed
        pyg = pytest.importorskip("torch_geometric.data")
    graph = as_graph(pyg.Data(**vars(data(y=NODE[:, None] % 2, edge_attr=WEIGHT[:, None]))))
    np.testing.assert_array_equal(graph.adjacency().toarray(), EXPECTED)
    assert graph.labels.tolist() == [0, 1, 0, 1] and graph.train_mask.sum() == 2
    assert as_graph(pyg.Data(edge_index=ARCS, num_nodes=6)).num_nodes == 6
    with pytest.raises(DataError, match="HeteroData .*to_homogeneous"):
        as_graph(pyg.HeteroData())
    with pytest.raises(DataError, match="has no edge_index"):
        as_graph(pyg.Data(x=torch.eye(4)))


def test_graphs_of_networkx_and_scipy_have_edges_only(fields):
    directed = networkx.DiGraph([("b", "a"), ("a", "c")], name="letters")
    directed.nodes["a"]["x"] = 7
    graph = as_graph(directed)
    assert repr(graph) == "Graph(letters: 3 nodes, 2 stored edges, no features, no labels, no split)"
    np.testing.assert_array_equal(graph.adjacency().toarray(), Graph.from_networkx(directed).adjacency().toarray())
    assert as_graph(networkx.path_graph(3)).name == "graph"
    dense = np.array([[0, 2.5], [0, 0]])
    np.testing.assert_array_equal(as_graph(scipy.sparse.coo_matrix(dense)).adjacency().toarray(), dense)
    assert as_graph(graph) is graph


@pytest.mark.parametrize("value", [np.eye(3), ARCS, None, "cora", {0: [1]}])
def test_anything_else_is_refused_with_what_is_taken(value):
    with pytest.raises(DataError, match=f"^{type(value).__name__} is no type of a graph: pass a fullgnn.Graph, "):
        as_graph(value)


# adj_t, and back to PyTorch Geometric


def sparse_tensor(values):
    """A stand-in for a SparseTensor of torch_sparse, whose rows are targets."""
    order = torch.argsort(ARCS[1] * 4 + ARCS[0])
    entries = ARCS[1][order], ARCS[0][order], None if values is None else values[order]
    return SimpleNamespace(coo=lambda: entries, sparse_sizes=lambda: (4, 4))


def torch_sparse(values, layout):
    values = torch.ones(4) if values is None else values
    coo = torch.sparse_coo_tensor(ARCS.flip([0]), values, (4, 4), check_invariants=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its sparse tensors a beta
        return coo.to_sparse(layout=layout)


FORMS = {
    "SparseTensor": sparse_tensor,
    "csr": lambda values: torch_sparse(values, torch.sparse_csr),
    "csc": lambda values: torch_sparse(values, torch.sparse_csc),
    "coo": lambda values: torch_sparse(values, torch.sparse_coo),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_adj_t_are_targets(form):
    plain = Graph.from_pyg(data(edge_index=None, adj_t=FORMS[form](None)))
    np.testing.assert_array_equal(plain.adjacency().toarray(), EXPECTED != 0)
    assert plain.weight is None and plain.remarks == {}
    weighted = data(edge_index=None, adj_t=FORMS[form](WEIGHT))
    np.testing.assert_array_equal(as_graph(weighted).adjacency().toarray(), EXPECTED)
    assert Graph.from_pyg(weighted, edge_weight=None).weight is None
    with pytest.raises(DataError, match="adj_t holds int64 numbers, which may be relations.*edge_weight=data.adj_t"):
        Graph.from_pyg(data(edge_index=None, adj_t=FORMS[form](WEIGHT.long())))
    assert Graph.from_pyg(SimpleNamespace(adj_t=FORMS[form](None))).num_nodes == 4


@pytest.mark.parametrize(
    ("adj_t", "message"),
    [
        (torch.eye(4), "adj_t is a Tensor: pass a SparseTensor or a sparse tensor"),
        (
            torch.sparse_coo_tensor(ARCS, torch.ones(4), (4, 5), check_invariants=True),
            r"adj_t has shape \(4, 5\): an adjacency matrix is square",
        ),
        (
            torch.sparse_coo_tensor(ARCS, torch.ones(4, 2), (4, 4, 2), check_invariants=True),
            r"adj_t has \(2,\) numbers for each arc",
        ),
    ],
)
def test_an_adj_t_that_is_no_adjacency(adj_t, message):
    with pytest.raises(DataError, match=message):
        Graph.from_pyg(data(edge_index=None, adj_t=adj_t))


def test_real_adj_t_of_pyg():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pyg = pytest.importorskip("torch_geometric")
        given = pyg.data.Data(**vars(data(edge_weight=WEIGHT)))
        for layout in (torch.sparse_csr, torch.sparse_coo):
            transformed = pyg.transforms.ToSparseTensor(layout=layout)(given.clone())
            assert transformed.edge_index is None
            np.testing.assert_array_equal(as_graph(transformed).adjacency().toarray(), EXPECTED)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict(edge_weight=np.array([0.5, 1, 2, 3])),
        dict(labels=np.array([[0, 1], [1, 1], [-1, -1], [0, 0]])),
        dict(labels=np.array([0.5, np.nan, 2, 3])),
        dict(labels=None, features=None, num_nodes=4),
        dict(features=scipy.sparse.csr_array(np.eye(4, 7, 1))),
    ],
)
def test_a_graph_comes_back_from_pyg(changes, fields):
    pytest.importorskip("torch_geometric")
    given = dict(fields(4), train_mask=None, val_mask=None, num_classes=0) | changes
    given["test_mask"] = [True, False, False, False] if given["labels"] is not None else None
    graph = Graph.from_edge_index(ARCS, **given)
    back = graph.to_pyg()
    assert back.validate() and back.num_nodes == 4 and back.num_edges == graph.num_edges
    returned = as_graph(back)
    assert type(returned.features) is type(graph.features) and returned.features.dtype == graph.features.dtype
    assert returned.features.shape == graph.features.shape and not (returned.features != graph.features).sum()
    for name in ("indptr", "indices", "labels", "train_mask", "val_mask", "test_mask", "weight"):
        np.testing.assert_array_equal(getattr(returned, name), getattr(graph, name))
        assert getattr(getattr(returned, name), "dtype", None) == getattr(getattr(graph, name), "dtype", None)
    back.edge_index.fill_(0)  # a copy
    assert returned.num_edges == graph.num_edges == 4
