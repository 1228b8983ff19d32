"""What a graph is made of: the keys of ``dataset=table``, and the tables and columns that they choose."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fullgnn.errors import ConfigError, DataError, quoted
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
from fullgnn.graph.datasets.table_source import Source
from fullgnn.graph.made_features import MADE, check_made

log = logging.getLogger(__name__)

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
    def of(cls, given: Mapping[str, Any]) -> "TableKeys":
        """The keys that are in ``given``, such as the arguments of a function."""
        return cls(**{one.name: given[one.name] for one in fields(cls) if one.name in given})

    def __post_init__(self) -> None:
        for key in ("weight", "features", "feature_value", "label", "split_columns", "mask_columns"):
            value = getattr(self, key)
            object.__setattr__(self, key, [value] if isinstance(value, str) else value)
        for key, choices in (("unknown_nodes", UNKNOWN_NODES), ("label_type", (*LABEL_TYPES, None))):
            if getattr(self, key) not in choices:
                told = ", ".join("null" if one is None else one for one in choices)
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
        return [name for one in self.node_columns for name in (*one.splits, *one.masks[:1])]

    @property
    def id_kind(self) -> str:
        """``integer`` or ``text``: what all columns of ids may be, by their types. CSV files do not tell."""
        types = [
            table.types[name] for table, one in zip(self.edges, self.edge_columns) for name in (one.source, one.target)
        ]
        types += [table.types[one.node] for table, one in zip(self.features, self.feature_columns)]
        types += [table.types[one.node] for group, one in zip(self.groups, self.node_columns) for table in group]
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
        for table, one in zip(self.features[:1], self.feature_columns):
            told = f"node={one.node}, feature={one.name}, value={one.value or '1'}"
            log.info("%s: %s", table.name, quoted(told))
        if self.keys.made is None and not self.features and not any(one.features for one in self.node_columns):
            named = (name for one in self.node_columns for name in one.others)
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
    from fullgnn.graph.datasets.table_labels import LabelColumn  # imports numba
    from fullgnn.graph.datasets.table_splits import place_of_split

    of_edges = [edge_columns(table, keys.source, keys.target, keys.weight) for table in edges]
    _check_numbers(edges, [one.weight for one in of_edges], "weight", "edges")
    of_features = [
        feature_columns(table, keys.feature_node, keys.feature_name, keys.feature_value) for table in features
    ]
    _check_numbers(features, [one.value for one in of_features], "feature_value", "features")
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
        check_named("features", named, (name for one in of_nodes for name in one.features), nodes)
        check_named("label", keys.label, (name for one in of_nodes for name in one.labels), nodes)
        check_named("mask_columns", keys.mask_columns, (name for one in of_nodes for name in one.masks), nodes)
        check_named("split_columns", keys.split_columns, (name for one in of_nodes for name in one.splits), nodes)
    refuse_twice(of_nodes, [group[0] for group in groups])
    for group, one in zip(groups, of_nodes):
        for name in one.labels:
            LabelColumn(group[0], name)
    split, masks = ([name for one in of_nodes for name in getattr(one, kind)] for kind in ("splits", "masks"))
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
    if len({one is None for one in columns}) > 1:
        without = next(table.name for table, one in zip(tables, columns) if one is None)
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
