"""Choose the tables of a graph and their columns; tables are files, or in the memory of Python."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fullgnn.errors import ConfigError, quoted
from fullgnn.graph.datasets.table_columns import (
    NodeColumns,
    PairColumns,
    TableKeys,
    check_named,
    dtype_of_labels,
    node_columns,
    pair_columns,
    place_of_split,
    refuse_twice,
)
from fullgnn.graph.datasets.table_source import Source

log = logging.getLogger(__name__)


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
    of_edges, of_features = pair_columns(edges, "edges", keys), pair_columns(features, "features", keys)
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
    of_nodes = node_columns(nodes, keys)
    if not of_nodes:
        for key in ("node", "label", "split_columns", "mask_columns"):
            if getattr(keys, key):
                raise ConfigError(f"dataset.{key} is given, and there is no table of nodes: set dataset.nodes")
        if keys.named_features:
            raise ConfigError("dataset.features names columns, and there is no table of nodes: set dataset.nodes")
    else:
        check_named("features", keys.named_features, (name for cols in of_nodes for name in cols.features), nodes)
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


def _few(names: Sequence[str]) -> str:
    """Some names, and the number of the others."""
    shown = quoted(",".join(names[:3]))
    return shown if len(names) <= 3 else f"{shown},... ({len(names)} columns)"
