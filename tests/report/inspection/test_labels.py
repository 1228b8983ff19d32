"""Homophily, against PyTorch Geometric, published numbers and the formulas on dense matrices; classes by split."""

import numpy as np
import pytest
import torch

from fullgnn.graph import Graph
from fullgnn.report.inspection.labels import homophily, labels_of
from fullgnn.report.inspection.passes import Passes
from tests.report.inspection.graphs import random_graph


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_formulas_on_a_dense_matrix(symmetric: bool) -> None:
    graph = random_graph(1, symmetric=symmetric, density=0.2)
    known = graph.labels >= 0
    adj = graph.adjacency(np.int64).toarray() * np.outer(known, known) * ~np.eye(40, dtype=bool)
    equal = graph.labels[:, None] == graph.labels
    edge = (adj * equal).sum() / adj.sum()
    reads = adj.sum(axis=1) > 0
    node = ((adj * equal).sum(axis=1)[reads] / adj.sum(axis=1)[reads]).mean()
    into = np.array([adj[graph.labels == k].sum() for k in range(4)])
    out = np.array([adj[:, graph.labels == k].sum() for k in range(4)])
    expected = (into * out).sum() / adj.sum() ** 2
    measured = homophily(Passes.over(graph))
    adjusted = (edge - expected) / (1 - expected)
    np.testing.assert_allclose([measured.edge, measured.node, measured.adjusted], [edge, node, adjusted], rtol=1e-12)
    assert measured.num_arcs == adj.sum()


def test_edge_and_node_homophily_are_those_of_pytorch_geometric() -> None:
    """On a labelled graph without self-loops, whose definitions agree with ours; it computes in float32."""
    utils = pytest.importorskip("torch_geometric.utils")
    rng = np.random.default_rng(0)
    arcs = rng.integers(0, 50, (2, 300))
    arcs = np.unique(arcs[:, arcs[0] != arcs[1]], axis=1)
    arcs = np.concatenate([arcs, [np.arange(50), (np.arange(50) + 1) % 50]], axis=1)  # every node reads one
    labels = rng.integers(0, 3, 50)
    graph = Graph.from_edge_index(np.unique(arcs, axis=1), num_nodes=50, labels=labels)
    edge_index = torch.from_numpy(np.unique(arcs, axis=1))
    measured = homophily(Passes.over(graph))
    for method in ("edge", "node"):
        judged = utils.homophily(edge_index, torch.from_numpy(labels), method=method)
        assert getattr(measured, method) == pytest.approx(float(judged), abs=1e-6)


def test_tolokers_has_the_published_homophily(shared_data) -> None:
    """Edge 0.59 and adjusted 0.09: Platonov et al., "A critical look at the evaluation of GNNs under heterophily"."""
    with np.load(shared_data / "heterophilous" / "tolokers.npz") as file:
        edges, labels = file["edges"].T, file["node_labels"]
    graph = Graph.from_edge_index(np.concatenate([edges, edges[::-1]], axis=1), num_nodes=len(labels), labels=labels)
    measured = homophily(Passes.over(graph))
    assert (round(measured.edge, 2), round(measured.adjusted, 2)) == (0.59, 0.09)


def test_one_class_and_no_edge_between_labelled_nodes() -> None:
    one_class = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3, labels=[2, 2, -1])
    measured = homophily(Passes.over(one_class))
    assert (measured.edge, measured.node, measured.adjusted) == (1, 1, None)
    none = Graph.from_edge_index([[0, 2], [0, 1]], num_nodes=3, labels=[2, 0, -1])  # a self-loop, an unlabelled source
    assert homophily(Passes.over(none)).num_arcs == 0 and homophily(Passes.over(none)).edge is None


def test_classes_by_part_of_the_split() -> None:
    graph = random_graph(2)
    labels = labels_of(graph, Passes.over(graph))
    masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
    masks["none"] = ~(graph.train_mask | graph.val_mask | graph.test_mask)
    assert labels.split == {name: mask.sum() for name, mask in masks.items()}
    assert labels.class_names is None
    assert labels.num_labelled == (graph.labels >= 0).sum() and labels.kind == "4 classes"
    for name, mask in masks.items():
        assert labels.classes[name] == tuple((graph.labels[mask] == k).sum() for k in range(4))


def test_several_labels_a_node_and_values() -> None:
    several = np.array([[1, 0, 1], [0, -1, 1], [1, 1, 0]])
    graph = Graph.from_edge_index([[0], [1]], num_nodes=3, labels=several, train_mask=[1, 1, 0], test_mask=[0, 0, 1])
    labels = labels_of(graph, Passes.over(graph))
    assert labels.classes == {"train": (1, 0, 2), "val": (0, 0, 0), "test": (1, 1, 0), "none": (0, 0, 0)}
    assert labels.homophily is None
    values = Graph.from_edge_index([[0], [1]], num_nodes=3, labels=[1.5, 2.5, np.nan], train_mask=[1, 1, 0])
    labels = labels_of(values, Passes.over(values))
    assert labels.means == {"train": (2.0, 0.5)} and labels.classes == {} and labels.num_labelled == 2
    without = Graph.from_edge_index([[0], [1]], num_nodes=3)
    assert labels_of(without, Passes.over(without)) is None
