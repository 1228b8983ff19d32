"""The graph of some tables of edges and of nodes, whether they are files or in the memory of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.table_plan import Plan
from fullgnn.graph.datasets.table_source import WrongValue
from fullgnn.graph.graph import Graph
from fullgnn.graph.labels import is_labelled
from fullgnn.graph.made_features import made_features
from fullgnn.graph.masks import MASKS

if TYPE_CHECKING:
    from fullgnn.graph.datasets.table_nodes import NodeValues  # imports numba

T = TypeVar("T")


def graph_of(plan: Plan, name: str) -> Graph:
    """Read the tables.

    Raises:
        DataError: a value is missing or wrong.
    """
    plan.say()
    return _of_kind(plan, lambda kind: _read(plan, name, kind))


def groups_of(plan: Plan) -> np.ndarray:
    """(num_nodes,) int64, the values of the column of labels in the tables of nodes, numbered; -1 where there is none.

    Raises:
        DataError: a value is wrong.
    """
    from fullgnn.graph.datasets.table_labels import labels_of  # imports numba
    from fullgnn.graph.datasets.table_nodes import read_nodes
    from fullgnn.graph.datasets.table_values import ids_of

    def read(kind: str) -> np.ndarray:
        nodes = read_nodes(plan.groups, plan.node_columns, ids_of(kind), kind)
        found = labels_of(nodes.labels, "class")[0]
        assert found is not None
        return found

    return _of_kind(plan, read)


def _of_kind(plan: Plan, read: Callable[[str], T]) -> T:
    """What ``read`` returns for ids that are integers, or for texts where they are not all integers."""
    if plan.id_kind == "integer":
        try:
            return read("integer")
        except WrongValue as error:
            if not error.of_id:
                raise
    return read("text")


def _read(plan: Plan, name: str, kind: str) -> Graph:
    from fullgnn.graph.datasets.table_edges import numbered, read_edges  # imports numba
    from fullgnn.graph.datasets.table_features import SparseFeatures
    from fullgnn.graph.datasets.table_nodes import read_nodes
    from fullgnn.graph.datasets.table_values import NO_NODE, ids_of
    from fullgnn.graph.ids import as_node_names

    keys, ids = plan.keys, ids_of(kind)
    nodes = read_nodes(plan.groups, plan.node_columns, ids, kind) if plan.groups else None
    if nodes is not None and not len(ids):
        raise DataError(f"{plan.groups[0][0].name} has no node: a graph has at least one")
    num_given = len(ids)
    unknown = keys.unknown_nodes if plan.groups else "add"
    builder, num_dropped = read_edges(plan.edges, plan.edge_columns, ids, kind, unknown)
    entries = None
    if plan.features:
        entries = SparseFeatures(plan.features, plan.feature_columns, keys.feature_channels)
        entries.read(ids, kind, keys.unknown_nodes, NO_NODE if plan.groups else "no edge has")
    check_num_nodes(len(ids), f"the graph of {plan.edges[0].name}")
    number, names = numbered(ids, num_given)
    del ids  # its memory is free before the arcs are sorted
    num_nodes = len(names)
    arcs = builder.finish(num_nodes, number)
    values: dict[str, Any] = {}
    noted = {**arcs.remarks, "unknown_arcs": num_dropped}
    if entries is not None:
        values["features"], remarks = entries.finish(num_nodes, number)
        noted |= remarks
    if nodes is not None:
        noted["added_nodes"] = num_nodes - num_given
        of_nodes, remarks = _of_nodes(nodes, plan, num_nodes - num_given)
        values |= of_nodes
        noted |= remarks
    if keys.made is not None:
        values["features"] = made_features(keys.made, arcs.indptr, arcs.indices, keys.seed, keys.feature_channels)
    node_names = as_node_names(names)
    return Graph(
        arcs.indptr, arcs.indices, weight=arcs.weight, name=name, node_names=node_names, remarks=noted, **values
    )


def _of_nodes(nodes: NodeValues, plan: Plan, num_added: int) -> tuple[dict[str, Any], dict[str, int]]:
    """What a ``Graph`` takes of the tables of nodes, and the remarks.

    Args:
        num_added: how many nodes follow those of the tables.
    """
    from fullgnn.graph.datasets.table_labels import labels_of  # imports numba
    from fullgnn.graph.datasets.table_splits import place_of_split

    values: dict[str, Any] = {}
    noted: dict[str, int] = {}
    labels, values["class_names"] = labels_of(nodes.labels, plan.keys.label_type)
    values["labels"] = labels = _lengthened(labels, num_added)
    if nodes.features is not None:
        values["features"] = nodes.features
        if num_added:
            raise DataError(
                f"dataset.unknown_nodes=add adds {num_added} nodes, which have no features: choose"
                " dataset.features=degree, random or identity, or dataset.unknown_nodes=drop"
            )
    if plan.splits:
        split = nodes.splits[plan.splits[place_of_split(plan.splits, plan.keys.split)]]
        split = np.append(split, np.full(num_added, -1, np.int8))
        if labels is not None:
            hidden = (split >= 0) & ~is_labelled(labels)
            noted["unlabelled_split_nodes"] = int(np.count_nonzero(hidden))
            split[hidden] = -1
        values |= {mask: split == part for part, mask in enumerate(MASKS)}
    return values, noted


def _lengthened(labels: np.ndarray | None, count: int) -> np.ndarray | None:
    """``labels`` with as many unknown ones behind them."""
    if labels is None or not count:
        return labels
    unknown = np.full((count, *labels.shape[1:]), np.nan if labels.dtype.kind == "f" else -1, labels.dtype)
    return np.concatenate([labels, unknown])
