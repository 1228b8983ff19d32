"""The graph of the tables and columns that are planned: edges become arcs between numbered nodes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.arcs import ArcBuilder
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.table_columns import PairColumns, place_of_split
from fullgnn.graph.datasets.table_features import SparseFeatures
from fullgnn.graph.datasets.table_graph import Plan
from fullgnn.graph.datasets.table_labels import labels_of
from fullgnn.graph.datasets.table_nodes import NodeValues, read_nodes
from fullgnn.graph.datasets.table_source import WrongValue
from fullgnn.graph.datasets.table_values import NO_NODE, Ids, codes_of, ids_of, numbers_of
from fullgnn.graph.graph import Graph
from fullgnn.graph.ids import numbered
from fullgnn.graph.labels import is_labelled
from fullgnn.graph.masks import MASKS
from fullgnn.graph.node_data import made_features
from fullgnn.graph.node_names import as_node_names
from fullgnn.telemetry.machine import check_fits

T = TypeVar("T")

_BYTES_OF_ARC = 8  # at least


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

    def read(kind: str) -> np.ndarray:
        nodes = read_nodes(plan.nodes, ids_of(kind), kind)
        labels = labels_of(nodes.labels, "class")[0]
        assert labels is not None
        return labels

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

    keys, ids = plan.keys, ids_of(kind)
    nodes = read_nodes(plan.nodes, ids, kind) if plan.nodes else None
    if nodes is not None and not len(ids):
        raise DataError(f"{plan.nodes[0].tables[0].name} has no node: a graph has at least one")
    num_given = len(ids)
    builder, num_dropped = _read_edges(plan.edges, ids, kind, keys.unknown_nodes if plan.nodes else "add")
    entries = None
    if plan.features:
        entries = SparseFeatures(plan.features, keys.feature_channels)
        entries.read(ids, kind, keys.unknown_nodes, NO_NODE if plan.nodes else "no edge has")
    check_num_nodes(len(ids), f"the graph of {plan.edges[0].table.name}")
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


def _read_edges(columns: Sequence[PairColumns], ids: Ids, kind: str, unknown: str) -> tuple[ArcBuilder, int]:
    """Read all edges as arcs between the numbers of their nodes. An edge from source to target makes the target read
    from the source.

    Args:
        columns: all have a weight, or none has.
        ids: the numbers of the nodes of the tables of nodes; nodes that are added get the next ones.
        unknown: what happens to an edge whose node has no number: refuse, add or drop.

    Returns:
        the arcs, and how many edges were dropped.

    Raises:
        DataError: a value is missing or wrong; the message names the table, the row and the column.
    """
    num_dropped, num_arcs, name = 0, sum(cols.table.num_rows or 0 for cols in columns), columns[0].table.name
    check_fits(_BYTES_OF_ARC * num_arcs, f"{name} with {num_arcs} edges", "take a machine with more memory")
    builder = ArcBuilder(num_arcs, _weight_dtype(columns))
    for cols in columns:
        for piece in cols.pieces(kind, kind):
            ends = [codes_of(piece, column, ids, unknown, NO_NODE) for column in (cols.first, cols.second)]
            weight = None if cols.number is None else numbers_of(piece, cols.number, "a weight")
            if unknown == "drop" and min(codes.min(initial=0) for codes in ends) < 0:
                kept = (ends[0] >= 0) & (ends[1] >= 0)
                num_dropped += len(kept) - int(np.count_nonzero(kept))
                ends, weight = [codes[kept] for codes in ends], None if weight is None else weight[kept]
            builder.add(ends[0], ends[1], weight)
    if not len(ids):
        raise DataError(f"{name} has no edge: there are no nodes without a table of nodes")
    return builder, num_dropped


def _weight_dtype(columns: Sequence[PairColumns]) -> Any:
    """float32 where all weights are stored so, float64 otherwise; None without weights."""
    if columns[0].number is None:
        return None
    types = {str(cols.table.types[cols.number or ""]) for cols in columns}
    return np.float32 if types <= {"float", "halffloat"} else np.float64


def _of_nodes(nodes: NodeValues, plan: Plan, num_added: int) -> tuple[dict[str, Any], dict[str, int]]:
    """What a ``Graph`` takes of the tables of nodes, and the remarks.

    Args:
        num_added: how many nodes follow those of the tables.
    """
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
