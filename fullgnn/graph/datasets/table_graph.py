"""The graph of some tables of edges and of nodes, whether they are files or in the memory of Python: the keys of
``dataset=table``, the tables and columns that they choose, and what is made of these."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fullgnn.errors import ConfigError, DataError, quoted
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.table_columns import (
    EdgeColumns,
    FeatureColumns,
    Named,
    NodeColumns,
    check_named,
    edge_columns,
    feature_columns,
    node_columns,
    refuse_twice,
)
from fullgnn.graph.datasets.table_source import Source, WrongValue
from fullgnn.graph.graph import Graph
from fullgnn.graph.labels import is_labelled
from fullgnn.graph.masks import MASKS
from fullgnn.graph.node_data import MADE, check_made, made_features

if TYPE_CHECKING:
    from fullgnn.graph.datasets.table_nodes import NodeValues  # imports numba

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
    feature_node: str | None = None
    feature_name: str | None = None
    feature_value: Named = None
    label: Named = None
    label_type: str | None = None
    split_columns: Named = None
    mask_columns: Named = None
    split: int | str | None = None
    unknown_nodes: str = "refuse"
    seed: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TableKeys:
        """The keys that are in ``given``, such as the arguments of a function."""
        return cls(**{field.name: given[field.name] for field in fields(cls) if field.name in given})

    def __post_init__(self) -> None:
        for key in ("weight", "features", "feature_value", "label", "split_columns", "mask_columns"):
            value = getattr(self, key)
            object.__setattr__(self, key, [value] if isinstance(value, str) else value)
        for key, choices in (("unknown_nodes", UNKNOWN_NODES), ("label_type", (*LABEL_TYPES, None))):
            if getattr(self, key) not in choices:
                told = ", ".join("null" if choice is None else choice for choice in choices)
                raise ConfigError(f"dataset.{key}={quoted(getattr(self, key))} is not known: choose one of {told}")
        if self.mask_columns and len({*self.mask_columns}) != 3:
            raise ConfigError(
                f"dataset.mask_columns=[{quoted(','.join(self.mask_columns))}] names no three columns: give those of"
                " training, validation and test nodes, such as [train_mask,val_mask,test_mask]"
            )
        if self.mask_columns and self.split_columns:
            raise ConfigError("dataset.split_columns and dataset.mask_columns both name the split: leave one out")
        if self.made is not None:
            check_made(self.made, self.feature_channels)
        elif self.feature_channels is not None and self.feature_channels < 1:
            raise ConfigError(f"dataset.feature_channels={self.feature_channels}: choose 1 or more, or null")

    @property
    def made(self) -> str | None:
        """How the features are made; None: they are read."""
        return self.features[0] if self.features and len(self.features) == 1 and self.features[0] in MADE else None

    def node_columns(self, table: Source) -> NodeColumns:
        """The columns of a table of nodes; see ``table_columns.node_columns``."""
        features = [] if self.made else self.features
        return node_columns(table, self.node, features, self.label, self.split_columns, self.mask_columns)


@dataclass(frozen=True)
class Plan:
    """Which tables are read, and which of their columns."""

    keys: TableKeys
    edges: Sequence[Source]
    edge_columns: Sequence[EdgeColumns]
    groups: Sequence[Sequence[Source]]  # of nodes: tables whose rows follow each other
    node_columns: Sequence[NodeColumns]  # of each group
    features: Sequence[Source]  # tables of features
    feature_columns: Sequence[FeatureColumns]

    @property
    def splits(self) -> list[str]:
        """The columns of splits; of three masks, the first stands for all."""
        return [name for cols in self.node_columns for name in (*cols.splits, *cols.masks[:1])]

    @property
    def id_kind(self) -> str:
        """``integer`` or ``text``: what all columns of ids may be, by their types. CSV files do not tell."""
        types = [
            table.types[end] for table, cols in zip(self.edges, self.edge_columns) for end in (cols.source, cols.target)
        ]
        types += [table.types[cols.node] for table, cols in zip(self.features, self.feature_columns)]
        types += [table.types[cols.node] for group, cols in zip(self.groups, self.node_columns) for table in group]
        return "text" if any("string" in str(type_) for type_ in types) else "integer"

    def say(self) -> None:
        """Log which columns are read, and what to do where no features are."""
        for table, edge in zip(self.edges[:1], self.edge_columns):
            told = f"source={edge.source}, target={edge.target}, weight={edge.weight or 'none'}"
            log.info("%s: %s", table.name, quoted(told))
        for group, node in zip(self.groups, self.node_columns):
            parts = {"features": node.features, "label": node.labels, "split": node.splits + node.masks}
            parts["not read"] = node.others
            told = ", ".join(f"{what}={_few(names)}" for what, names in parts.items() if names)
            log.info("%s: node=%s%s", group[0].name, quoted(node.node), f", {told}" if told else "")
        for table, cols in zip(self.features[:1], self.feature_columns):
            told = f"node={cols.node}, feature={cols.name}, value={cols.value or '1'}"
            log.info("%s: %s", table.name, quoted(told))
        if self.keys.made is None and not self.features and not any(cols.features for cols in self.node_columns):
            named = (name for cols in self.node_columns for name in cols.others)
            choice = next((f"[{quoted(name)}]" for name in named), None)
            log.info(
                "%s: no column has features: give dataset.features=%sdegree, random, or identity with"
                " model.embedding_channels",
                self.edges[0].name,
                "" if choice is None else f"{choice}, ",
            )


def planned(edges: Sequence[Source], nodes: Sequence[Source], features: Sequence[Source], keys: TableKeys) -> Plan:
    """Find the columns of the tables.

    Raises:
        ConfigError, DataError: a column is not there, or several may be meant.
    """
    from fullgnn.graph.datasets.table_labels import (
        LabelColumn,  # imports numba
        place_of_split,
    )

    of_edges = [edge_columns(table, keys.source, keys.target, keys.weight) for table in edges]
    _check_numbers(edges, [cols.weight for cols in of_edges], "weight", "edges")
    of_features = [
        feature_columns(table, keys.feature_node, keys.feature_name, keys.feature_value) for table in features
    ]
    _check_numbers(features, [cols.value for cols in of_features], "feature_value", "features")
    if features:
        if keys.features:
            raise ConfigError("dataset.features and dataset.feature_table both give the features: leave one out")
        keys = replace(keys, features=[])
    else:
        for key in ("feature_node", "feature_name", "feature_value"):
            if getattr(keys, key):
                raise ConfigError(f"dataset.{key} is given, and there is no table of features: set it by feature_table")
        if keys.feature_channels is not None and keys.made is None:
            raise ConfigError(
                "dataset.feature_channels is given, and belongs to dataset.features=random and to"
                " dataset.feature_table: leave it out"
            )
    groups = grouped(nodes)
    named = [] if keys.made else keys.features
    of_nodes = [keys.node_columns(group[0]) for group in groups]
    if not groups:
        for key in ("node", "label", "split_columns", "mask_columns"):
            if getattr(keys, key):
                raise ConfigError(f"dataset.{key} is given, and there is no table of nodes: set dataset.nodes")
        if named:
            raise ConfigError("dataset.features names columns, and there is no table of nodes: set dataset.nodes")
    else:
        check_named("features", named, (name for cols in of_nodes for name in cols.features), nodes)
        check_named("label", keys.label, (name for cols in of_nodes for name in cols.labels), nodes)
        check_named("mask_columns", keys.mask_columns, (name for cols in of_nodes for name in cols.masks), nodes)
        check_named("split_columns", keys.split_columns, (name for cols in of_nodes for name in cols.splits), nodes)
    refuse_twice(of_nodes, [group[0] for group in groups])
    for group, cols in zip(groups, of_nodes):
        for name in cols.labels:
            LabelColumn(group[0], name)
    split, masks = ([name for cols in of_nodes for name in getattr(cols, kind)] for kind in ("splits", "masks"))
    if split and masks:
        raise ConfigError(
            f"the columns {quoted(', '.join(split))} and {quoted(', '.join(masks))} may be the split: choose"
            f" dataset.split_columns=[{quoted(split[0])}], or dataset.mask_columns=[{quoted(','.join(masks))}]"
        )
    plan = Plan(keys, edges, of_edges, groups, of_nodes, features, of_features)
    place_of_split(plan.splits, keys.split)
    return plan


def _check_numbers(tables: Sequence[Source], columns: Sequence[str | None], key: str, rows: str) -> None:
    """Refuse tables of which some have a column of numbers, and others have none."""
    if len({column is None for column in columns}) > 1:
        without = next(table.name for table, column in zip(tables, columns) if column is None)
        raise DataError(
            f"{without} has no column of dataset.{key}, and other tables of {rows} have one: add it, or set {key}=[]"
        )


def grouped(tables: Sequence[Source]) -> list[list[Source]]:
    """The tables whose rows follow each other: those with the same columns."""
    groups: dict[frozenset[str], list[Source]] = {}
    for table in tables:
        groups.setdefault(frozenset(table.types), []).append(table)
    return list(groups.values())


def _few(names: Sequence[str]) -> str:
    """Some names, and the number of the others."""
    shown = quoted(",".join(names[:3]))
    return shown if len(names) <= 3 else f"{shown},... ({len(names)} columns)"


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
    from fullgnn.graph.datasets.table_labels import (
        labels_of,  # imports numba
        place_of_split,
    )

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
