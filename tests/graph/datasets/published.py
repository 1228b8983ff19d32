"""Compares graphs with what their publishers' readers make of the same files."""

import warnings
from typing import Any

import numpy as np
import pytest

from fullgnn.graph import Graph


def pyg_datasets() -> Any:
    """The module ``torch_geometric.datasets``; the test is skipped without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch_geometric warns of extensions that are not installed
        return pytest.importorskip("torch_geometric.datasets")


def assert_is_pyg(graph: Graph, data: Any, split: int | None = None) -> None:
    """The ``graph`` has the arcs, features, labels and masks of ``data``, whose masks may have a column a split."""
    arcs = np.unique(data.edge_index.numpy(), axis=1)  # pairs of source and target, each once
    assert_has_arcs(graph, arcs)
    np.testing.assert_array_equal(graph.features, data.x.numpy())
    np.testing.assert_array_equal(graph.labels, data.y.numpy())
    for name in ("train_mask", "val_mask", "test_mask"):
        mask = getattr(data, name).numpy()
        np.testing.assert_array_equal(getattr(graph, name), mask if split is None else mask[:, split])


def assert_has_arcs(graph: Graph, arcs: np.ndarray) -> None:
    """The ``graph`` has these arcs, (2, E) sources above targets, each once and without weights."""
    target, source = graph.adjacency(bool).nonzero()
    order = np.lexsort((target, source))
    np.testing.assert_array_equal(np.stack([source, target])[:, order], arcs)
    assert graph.weight is None
