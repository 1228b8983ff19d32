"""Your own graph from tables in files: the edges, the nodes with their features, labels and split, and sparse features.

CSV and Parquet files are read piece by piece, so that the memory is that of the graph and not that of the files. An
edge from source to target makes the target read from the source. ``Graph.from_tables`` reads tables of pandas, polars
and pyarrow by the same code.
"""

import glob
from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError, quoted
from fullgnn.graph.datasets.table_columns import TableKeys, node_columns
from fullgnn.graph.datasets.table_graph import Plan, planned
from fullgnn.graph.datasets.table_source import Source, open_source, stem_of
from fullgnn.graph.graph import Graph


def files(edges: list[str] | None, nodes: list[str] | None, feature_table: list[str] | None) -> list[Path]:
    """The files of ``load``.

    Raises:
        ConfigError: no edges are given.
        DataError: a file is missing.
    """
    if not edges:
        raise ConfigError("dataset.edges has no value: give dataset.edges=FILE, a CSV or Parquet file of edges")
    return [*_paths("edges", edges), *_paths("nodes", nodes), *_paths("feature_table", feature_table)]


def node_groups(
    edges: list[str] | None,
    nodes: list[str] | None,
    source: str | None,
    target: str | None,
    weight: list[str] | None,
    node: str | None,
    delimiter: str | None,
    groups: str,
) -> np.ndarray:
    """(num_nodes,) int64, the values of the column ``groups`` of the tables of nodes, numbered; -1 where there is none.

    Raises:
        ConfigError: the tables of nodes have no such column.
    """
    not_read = dict.fromkeys(("features", "feature_table", "split_columns", "mask_columns"), ())
    keys = {**locals(), **not_read, "label": [groups]}
    from fullgnn.graph.datasets.table_read import groups_of  # imports numba

    try:
        return groups_of(_planned(keys))
    except ConfigError as error:  # the column is read as labels are
        raise ConfigError(str(error).replace("dataset.label=", "dataset.groups=")) from error


def load(
    name: str | None,
    edges: list[str] | None,
    nodes: list[str] | None,
    source: str | None,
    target: str | None,
    weight: list[str] | None,
    node: str | None,
    features: list[str] | None,
    feature_channels: int | None,
    feature_table: list[str] | None,
    feature_node: str | None,
    feature_name: str | None,
    feature_value: list[str] | None,
    label: list[str] | None,
    label_type: str | None,
    split_columns: list[str] | None,
    mask_columns: list[str] | None,
    unknown_nodes: str,
    delimiter: str | None,
    seed: int,
    split: int | str | None,
) -> Graph:
    """The graph of the files; ``docs/configuration.md`` explains the keys.

    Raises:
        ConfigError: a key is wrong, or must choose between several columns.
        DataError: a file is missing or damaged, or has a wrong value; the message names the file, row and column.
    """
    keys, paths = locals(), files(edges, nodes, feature_table)
    from fullgnn.graph.datasets.table_read import graph_of  # imports numba

    return graph_of(_planned(keys), name or stem_of(paths[0]))


@wraps(load, assigned=())  # for the keys that it takes
def check(**keys: Any) -> None:
    """Refuse keys and files that ``load`` would refuse by the headers of the files."""
    _planned(keys)


@wraps(load, assigned=())
def lacks(**keys: Any) -> list[str]:
    """Which of ``labels`` and ``train_mask`` no column has."""
    files(keys["edges"], keys["nodes"], keys["feature_table"])
    chosen = TableKeys.of(keys | {"features": []})
    columns = node_columns(_sources("nodes", keys["nodes"], keys["delimiter"]), chosen)
    has = {
        "labels": any(cols.labels for cols in columns),
        "train_mask": any(cols.splits or cols.masks for cols in columns),
    }
    return [name for name, is_there in has.items() if not is_there]


def _planned(keys: Mapping[str, Any]) -> Plan:
    """The tables and columns that the keys of ``load`` choose."""
    edges, nodes, features = (
        _sources(key, keys[key], keys["delimiter"]) for key in ("edges", "nodes", "feature_table")
    )
    return planned(edges, nodes, features, TableKeys.of(keys))


def _sources(key: str, values: list[str] | None, delimiter: str | None) -> list[Source]:
    return [open_source(path, delimiter) for path in _paths(key, values)]


def _paths(key: str, values: list[str] | None) -> list[Path]:
    """The files that a key names, those of a pattern in the order of their names.

    Raises:
        DataError: one is missing.
    """
    paths: list[Path] = []
    for value in [values] if isinstance(values, str) else values or ():
        path = Path(value).expanduser()
        matches = [path] if path.exists() or not glob.has_magic(value) else sorted(map(Path, glob.glob(str(path))))
        if not matches or not all(match.is_file() for match in matches):
            wrong = next((match for match in matches if not match.is_file()), path)
            raise DataError(f"no file {quoted(wrong.absolute())}: set dataset.{key} to a file of a table")
        paths += matches
    return paths
