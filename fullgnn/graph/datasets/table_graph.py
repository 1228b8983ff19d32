"""The graph of some tables of edges and of nodes, whether they are files or in the memory of Python."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.datasets.table_plan import Plan
from fullgnn.graph.datasets.table_source import WrongValue
from fullgnn.graph.graph import Graph
from fullgnn.graph.labels import is_labelled
from fullgnn.graph.made_features import made_features

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
    from fullgnn.graph.datasets.table_edges import read_edges  # imports numba
    from fullgnn.graph.datasets.table_labels import labels_of
    from fullgnn.graph.datasets.table_nodes import read_nodes
    from fullgnn.graph.datasets.table_splits import chosen_split
    from fullgnn.graph.datasets.table_values import ids_of

    keys = plan.keys
    ids = [ids_of(kind)]  # in a list, which the reader of edges empties, so that nothing else holds them
    nodes = read_nodes(plan.groups, plan.node_columns, ids[0], kind) if plan.groups else None
    if nodes is not None and not len(ids[0]):
        raise DataError(f"{plan.groups[0][0].name} has no node: a graph has at least one")
    num_given = len(ids[0])
    read = read_edges(plan.edges, plan.edge_columns, ids, kind, keys.unknown_nodes if plan.groups else None)
    arcs, num_nodes = read.arcs, len(read.arcs.indptr) - 1
    values: dict[str, Any] = {}
    noted = {**arcs.remarks, "unknown_arcs": read.num_dropped}
    if nodes is not None:
        num_added = num_nodes - num_given
        noted["added_nodes"] = num_added
        values["labels"], values["class_names"] = labels_of(nodes.labels, keys.label_type)
        values["labels"] = _lengthened(values["labels"], num_added)
        if nodes.features is not None and num_added:
            raise DataError(
                f"dataset.unknown_nodes=add adds {num_added} nodes, which have no features: choose"
                " dataset.features=degree, random or identity, or dataset.unknown_nodes=drop"
            )
        values["features"] = nodes.features
        if plan.splits:
            split = nodes.splits[plan.splits[chosen_split(plan.splits, keys.split)]]
            split = np.append(split, np.full(num_added, -1, np.int8))
            if values["labels"] is not None:
                hidden = (split >= 0) & ~is_labelled(values["labels"])
                noted["unlabelled_split_nodes"] = int(np.count_nonzero(hidden))
                split[hidden] = -1
            masks = ("train_mask", "val_mask", "test_mask")
            values |= {mask: split == part for part, mask in enumerate(masks)}
    if keys.made is not None:
        values["features"] = made_features(keys.made, arcs.indptr, arcs.indices, keys.seed, keys.feature_channels)
    return Graph(
        arcs.indptr, arcs.indices, weight=arcs.weight, name=name, node_names=read.names, remarks=noted, **values
    )


def _lengthened(labels: np.ndarray | None, count: int) -> np.ndarray | None:
    """``labels`` with as many unknown ones behind them."""
    if labels is None or not count:
        return labels
    unknown = np.full((count, *labels.shape[1:]), np.nan if labels.dtype.kind == "f" else -1, labels.dtype)
    return np.concatenate([labels, unknown])
