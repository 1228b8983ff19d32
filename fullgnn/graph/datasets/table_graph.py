"""The keys of ``dataset=table``, and the tables and columns that they choose; these are files, or in the memory of
Python."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fullgnn.errors import ConfigError, DataError, quoted
from fullgnn.graph.datasets.table_columns import (
    Named,
    NodeColumns,
    PairColumns,
    check_named,
    dtype_of_labels,
    node_columns,
    pair_columns,
    place_of_split,
    refuse_twice,
)
from fullgnn.graph.datasets.table_source import Source
from fullgnn.graph.node_data import MADE, check_made

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

    def node_columns(self, tables: Sequence[Source]) -> list[NodeColumns]:
        """The columns of the tables of nodes; the rows of tables with the same columns follow each other."""
        groups: dict[frozenset[str], list[Source]] = {}
        for table in tables:
            groups.setdefault(frozenset(table.types), []).append(table)
        named = [] if self.made else self.features, self.label, self.split_columns, self.mask_columns
        return [node_columns(group, self.node, *named) for group in groups.values()]


@dataclass(frozen=True)
class Plan:
    """Which tables are read, and which of their columns."""

    keys: TableKeys
    edges: Sequence[PairColumns]
    nodes: Sequence[NodeColumns]
    features: Sequence[PairColumns]

    @property
    def splits(self) -> list[str]:
        """The columns of splits; of three masks, the first stands for all."""
        return [name for cols in self.nodes for name in (*cols.splits, *cols.masks[:1])]

    @property
    def id_kind(self) -> str:
        """``integer`` or ``text``: what all columns of ids may be, by their types. CSV files do not tell."""
        types = [cols.table.types[end] for cols in self.edges for end in (cols.first, cols.second)]
        types += [cols.table.types[cols.first] for cols in self.features]
        types += [table.types[cols.node] for cols in self.nodes for table in cols.tables]
        return "text" if any("string" in str(type_) for type_ in types) else "integer"

    def say(self) -> None:
        """Log which columns are read, and what to do where no features are."""
        for edge in self.edges[:1]:
            told = f"source={edge.first}, target={edge.second}, weight={edge.number or 'none'}"
            log.info("%s: %s", edge.table.name, quoted(told))
        for node in self.nodes:
            parts = {"features": node.features, "label": node.labels, "split": node.splits + node.masks}
            parts["not read"] = node.others
            told = ", ".join(f"{what}={_few(names)}" for what, names in parts.items() if names)
            log.info("%s: node=%s%s", node.tables[0].name, quoted(node.node), f", {told}" if told else "")
        for entry in self.features[:1]:
            told = f"node={entry.first}, feature={entry.second}, value={entry.number or '1'}"
            log.info("%s: %s", entry.table.name, quoted(told))
        if self.keys.made is None and not self.features and not any(cols.features for cols in self.nodes):
            named = (name for cols in self.nodes for name in cols.others)
            choice = next((f"[{quoted(name)}]" for name in named), None)
            log.info(
                "%s: no column has features: give dataset.features=%sdegree, random, or identity with"
                " model.embedding_channels",
                self.edges[0].table.name,
                "" if choice is None else f"{choice}, ",
            )


def planned(edges: Sequence[Source], nodes: Sequence[Source], features: Sequence[Source], keys: TableKeys) -> Plan:
    """Find the columns of the tables.

    Raises:
        ConfigError, DataError: a column is not there, or several may be meant.
    """
    of_edges = [
        pair_columns(table, "edges", source=keys.source, target=keys.target, weight=keys.weight) for table in edges
    ]
    _check_numbers(of_edges, "weight", "edges")
    named_features = {key: getattr(keys, key) for key in ("feature_node", "feature_name", "feature_value")}
    of_features = [pair_columns(table, "features", **named_features) for table in features]
    _check_numbers(of_features, "feature_value", "features")
    if features:
        if keys.features:
            raise ConfigError("dataset.features and dataset.feature_table both give the features: leave one out")
        keys = replace(keys, features=[])
    else:
        for key, columns in named_features.items():
            if columns:
                raise ConfigError(f"dataset.{key} is given, and there is no table of features: set it by feature_table")
        if keys.feature_channels is not None and keys.made is None:
            raise ConfigError(
                "dataset.feature_channels is given, and belongs to dataset.features=random and to"
                " dataset.feature_table: leave it out"
            )
    of_nodes = keys.node_columns(nodes)
    named = [] if keys.made else keys.features
    if not of_nodes:
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
    refuse_twice(of_nodes)
    for cols in of_nodes:
        for name in cols.labels:
            dtype_of_labels(cols.tables[0], name)
    split, masks = ([name for cols in of_nodes for name in getattr(cols, kind)] for kind in ("splits", "masks"))
    if split and masks:
        raise ConfigError(
            f"the columns {quoted(', '.join(split))} and {quoted(', '.join(masks))} may be the split: choose"
            f" dataset.split_columns=[{quoted(split[0])}], or dataset.mask_columns=[{quoted(','.join(masks))}]"
        )
    plan = Plan(keys, of_edges, of_nodes, of_features)
    place_of_split(plan.splits, keys.split)
    return plan


def _check_numbers(columns: Sequence[PairColumns], key: str, rows: str) -> None:
    """Refuse tables of which some have a column of numbers, and others have none."""
    if len({cols.number is None for cols in columns}) > 1:
        without = next(cols.table.name for cols in columns if cols.number is None)
        raise DataError(
            f"{without} has no column of dataset.{key}, and other tables of {rows} have one: add it, or set {key}=[]"
        )


def _few(names: Sequence[str]) -> str:
    """Some names, and the number of the others."""
    shown = quoted(",".join(names[:3]))
    return shown if len(names) <= 3 else f"{shown},... ({len(names)} columns)"
