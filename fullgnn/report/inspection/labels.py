"""What the labels are: classes by part of the split, and homophily."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fullgnn.graph import Graph
from fullgnn.graph.labels import describe_labels, is_known, is_labelled
from fullgnn.report.inspection.findings import Homophily, Labels

if TYPE_CHECKING:
    from fullgnn.report.inspection.passes import Passes

PARTS = ("train", "val", "test", "none")
"""The parts of the split, and the nodes in none of them."""


def classes_of(graph: Graph) -> tuple[np.ndarray, int]:
    """(num_nodes,) int32, the class of each node, -1 if unknown, and the number of classes; empty and 0 where the
    labels are no classes, or none is known."""
    labels = graph.labels
    if labels.dtype.kind == "f" or labels.ndim == 2 or not (labels >= 0).any():
        return np.empty(0, np.int32), 0
    return labels.astype(np.int32), graph.num_classes


def labels_of(graph: Graph, passes: Passes) -> Labels | None:
    """The ``Labels`` of ``graph``; None if no label is known."""
    labels, labelled = graph.labels, is_labelled(graph.labels)
    if not labelled.any():
        return None
    split = graph.train_mask | graph.val_mask | graph.test_mask
    masks = dict(zip(PARTS, (graph.train_mask, graph.val_mask, graph.test_mask, ~split)))
    classes: dict[str, tuple[int, ...]] = {}
    means: dict[str, tuple[float, float]] = {}
    for name, mask in masks.items():
        nodes = mask & labelled
        if labels.dtype.kind != "f":
            counts = _counts(labels[nodes], graph.num_classes)
            classes[name] = tuple(counts.tolist())
        elif nodes.any():
            values = labels[nodes].astype(np.float64)
            means[name] = float(np.nanmean(values)), float(np.nanstd(values))
    return Labels(
        kind=describe_labels(labels, graph.num_classes),
        class_names=graph.class_names,
        num_labelled=int(np.count_nonzero(labelled)),
        split={name: int(np.count_nonzero(mask)) for name, mask in masks.items()},
        classes=classes,
        means=means,
        homophily=homophily(passes) if passes.of_class.size else None,
        num_several=_num_several(labels) if labels.ndim == 2 and labels.dtype.kind != "f" else None,
    )


def homophily(passes: Passes) -> Homophily:
    """How often neighbours have the same class, over the arcs between two different nodes that both have a class.

    With E these arcs, y the classes, N(v) the labelled nodes that v reads, and V the nodes whose N(v) is not empty:

        edge      h = |{(u, v) in E: y_u = y_v}| / |E|
        node      sum over v in V of |{u in N(v): y_u = y_v}| / |N(v)|, divided by |V|
        adjusted  (h - e) / (1 - e), with e = sum over classes k of D_k^in D_k^out / |E|^2

    where D_k^in and D_k^out are the arcs into and out of nodes of class k. The last is 0 on average where neighbours
    are joined without regard to their classes, so that graphs with other classes compare. Edge and node homophily are
    those of Zhu et al. (2020) and Pei et al. (2020); the adjusted one is that of Platonov, Kuznedelev, Babenko and
    Prokhorenkova, "Characterizing Graph Datasets for Node Classification" (NeurIPS 2023), for undirected graphs, where
    D_k^in = D_k^out. They make directed graphs undirected first: ``Graph.symmetrized`` does.
    """
    num_arcs, equal = passes.equal_arcs
    if not num_arcs:
        return Homophily(None, None, None, 0)
    edge = equal / num_arcs
    share_sum, num_nodes = passes.of_nodes.tolist()
    of_class = passes.of_class / num_arcs
    expected = float(of_class[0] @ of_class[1])
    adjusted = None if np.isclose(expected, 1, rtol=0, atol=1e-12) else (edge - expected) / (1 - expected)
    return Homophily(edge, share_sum / num_nodes, adjusted, num_arcs)


def _num_several(labels: np.ndarray) -> int:
    """How many nodes have more than one of (num_nodes, num_labels) labels."""
    return int(np.count_nonzero(np.count_nonzero(labels == 1, axis=1) > 1))


def _counts(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """(num_classes,) how many nodes have each class, or each of several labels."""
    if labels.ndim == 2:
        return np.count_nonzero((labels == 1) & is_known(labels), axis=0)
    return np.bincount(labels, minlength=num_classes)
