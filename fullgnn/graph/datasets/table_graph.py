"""The graph of some tables of edges and of nodes, whether they are files or in the memory of Python."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fullgnn.errors import ConfigError, DataError, quoted
from fullgnn.graph.datasets.table_columns import (
    EdgeColumns,
    Named,
    NodeColumns,
    check_named,
    edge_columns,
    node_columns,
    refuse_twice,
)
from fullgnn.graph.datasets.table_source import Source, WrongValue
from fullgnn.graph.graph import Graph
from fullgnn.graph.labels import is_labelled
from fullgnn.graph.made_features import MADE, check_made, made_features

log = logging.getLogger(__name__)

T = TypeVar("T")

UNKNOWN_NODES = ("refuse", "add", "drop")
LABEL_TYPES = ("class", "number")


@dataclass(frozen=True)
class TableKeys:
    """The keys of ``conf/dataset/table.yaml`` that say what the tables mean. One text stands for a list of it."""

    source: str | None = None
    target: str | None = None
    weight: Named = None
    node: str | None = None
    features: Named = None
    feature_channels: int | None = None
    label: Named = None
    label_type: str | None = None
    split_columns: Named = None
    split: int | str | None = None
    unknown_nodes: str = "refuse"
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("weight", "features", "label", "split_columns"):
            value = getattr(self, key)
            object.__setattr__(self, key, [value] if isinstance(value, str) else value)
        for key, choices in (("unknown_nodes", UNKNOWN_NODES), ("label_type", (*LABEL_TYPES, None))):
            if getattr(self, key) not in choices:
                told = ", ".join("null" if one is None else one for one in choices)
                raise ConfigError(f"dataset.{key}={quoted(getattr(self, key))} is not known: choose one of {told}")
        if self.made is not None:
            check_made(self.made, self.feature_channels)
        elif self.feature_channels is not None:
            raise ConfigError("dataset.feature_channels is given, and belongs to dataset.features=random: leave it out")

    @property
    def made(self) -> str | None:
        """How the features are made; None: they are read."""
        return self.features[0] if self.features and len(self.features) == 1 and self.features[0] in MADE else None

    def node_columns(self, table: Source) -> NodeColumns:
        """The columns of a table of nodes; see ``table_columns.node_columns``."""
        features = [] if self.made else self.features
        return node_columns(table, self.node, features, self.label, self.split_columns)


@dataclass(frozen=True)
class Plan:
    """Which tables are read, and which of their columns."""

    edges: Sequence[Source]
    edge_columns: Sequence[EdgeColumns]
    groups: Sequence[Sequence[Source]]  # of nodes: tables whose rows follow each other
    node_columns: Sequence[NodeColumns]  # of each group

    @property
    def splits(self) -> list[str]:
        """The columns of splits."""
        return [name for one in self.node_columns for name in one.splits]

    @property
    def id_kind(self) -> str:
        """``integer`` or ``text``: what all columns of ids may be, by their types. CSV files do not tell."""
        types = [
            table.types[name] for table, one in zip(self.edges, self.edge_columns) for name in (one.source, one.target)
        ]
        types += [table.types[one.node] for group, one in zip(self.groups, self.node_columns) for table in group]
        return "text" if any("string" in str(type_) for type_ in types) else "integer"

    def say(self, made: str | None) -> None:
        """Log which columns are read, and what to do where no features are.

        Args:
            made: how the features are made; None: they are read.
        """
        for table, edge in zip(self.edges[:1], self.edge_columns):
            told = f"source={edge.source}, target={edge.target}, weight={edge.weight or 'none'}"
            log.info("%s: %s", table.name, quoted(told))
        for group, node in zip(self.groups, self.node_columns):
            parts = {"features": node.features, "label": node.labels, "split": node.splits, "not read": node.others}
            told = ", ".join(f"{what}={_few(names)}" for what, names in parts.items() if names)
            log.info("%s: node=%s%s", group[0].name, quoted(node.node), f", {told}" if told else "")
        if made is None and not any(one.features for one in self.node_columns):
            named = (name for one in self.node_columns for name in one.others)
            choice = next((f"[{quoted(name)}]" for name in named), None)
            log.info(
                "%s: no column has features: give dataset.features=%sdegree, random, or identity with"
                " model.embedding_channels",
                self.edges[0].name,
                "" if choice is None else f"{choice}, ",
            )


def planned(edges: Sequence[Source], nodes: Sequence[Source], keys: TableKeys) -> Plan:
    """Find the columns of the tables.

    Raises:
        ConfigError, DataError: a column is not there, or several may be meant.
    """
    from fullgnn.graph.datasets.table_labels import LabelColumn, chosen_split  # imports numba

    of_edges = [edge_columns(table, keys.source, keys.target, keys.weight) for table in edges]
    if len({one.weight is None for one in of_edges}) > 1:
        without = next(table.name for table, one in zip(edges, of_edges) if one.weight is None)
        raise DataError(
            f"{without} has no column of weights, and other tables of edges have one: add it, or set weight=[]"
        )
    groups = grouped(nodes)
    features = [] if keys.made else keys.features
    of_nodes = [keys.node_columns(group[0]) for group in groups]
    if not groups:
        for key in ("node", "label", "split_columns"):
            if getattr(keys, key):
                raise ConfigError(f"dataset.{key} is given, and there is no table of nodes: set dataset.nodes")
        if features:
            raise ConfigError("dataset.features names columns, and there is no table of nodes: set dataset.nodes")
    else:
        check_named("features", features, (name for one in of_nodes for name in one.features), nodes)
        check_named("label", keys.label, (name for one in of_nodes for name in one.labels), nodes)
        check_named("split_columns", keys.split_columns, (name for one in of_nodes for name in one.splits), nodes)
    refuse_twice(of_nodes, [group[0] for group in groups])
    for group, one in zip(groups, of_nodes):
        for name in one.labels:
            LabelColumn(group[0], name)
    plan = Plan(edges, of_edges, groups, of_nodes)
    chosen_split(plan.splits, keys.split)
    return plan


def grouped(tables: Sequence[Source]) -> list[list[Source]]:
    """The tables whose rows follow each other: those with the same columns."""
    groups: dict[frozenset[str], list[Source]] = {}
    for table in tables:
        groups.setdefault(frozenset(table.types), []).append(table)
    return list(groups.values())


def graph_of(plan: Plan, name: str, keys: TableKeys) -> Graph:
    """Read the tables.

    Raises:
        DataError: a value is missing or wrong.
    """
    plan.say(keys.made)
    return _of_kind(plan, lambda kind: _read(plan, name, keys, kind))


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


def _read(plan: Plan, name: str, keys: TableKeys, kind: str) -> Graph:
    from fullgnn.graph.datasets.table_edges import read_edges  # imports numba
    from fullgnn.graph.datasets.table_labels import chosen_split, labels_of
    from fullgnn.graph.datasets.table_nodes import read_nodes
    from fullgnn.graph.datasets.table_values import ids_of

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


def _few(names: Sequence[str]) -> str:
    """Some names, and the number of the others."""
    shown = quoted(",".join(names[:3]))
    return shown if len(names) <= 3 else f"{shown},... ({len(names)} columns)"
