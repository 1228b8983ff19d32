"""The keys of ``dataset=table``, and which columns of a table say what: as a key names them, or by usual names.

A key names columns, an empty list says that there are none, and null finds them by their names. Where several columns
are possible, the key must choose.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError, quoted
from fullgnn.graph.datasets.table_source import TEXTS, Source, TablePiece
from fullgnn.graph.node_data import MADE, check_made

Named = Sequence[str] | None
"""Columns as a key names them: by their names, or by patterns such as ``f_*``."""

USUAL = {
    "source": ("source", "src", "from", "from_id", "source_id", "src_id", "head", "node1", "id1", "u"),
    "target": ("target", "dst", "dest", "to", "to_id", "target_id", "dst_id", "tail", "node2", "id2", "v"),
    "weight": ("weight", "weights", "edge_weight", "w"),
    "node": ("id", "node", "node_id", "nodeid", "name"),
    "label": ("label", "labels", "class", "y"),
    "split_columns": ("split", "set"),
    "features": ("features", "feature", "x", "feat", "embedding"),
    "feature_node": ("node", "node_id", "nodeid", "id"),
    "feature_name": ("feature", "feature_id", "word", "word_id", "term", "token", "column"),
    "feature_value": ("value", "count", "weight", "tf", "tfidf", "tf_idf"),
}
"""By key, the names by which a column is found, in lower case."""
_NUMBERED = re.compile(r"(?:f|x|feat|features?|attr|emb|embedding|dim)[_-]?\d+|\d+")
_MASKS = (("train_mask",), ("val_mask", "valid_mask", "validation_mask"), ("test_mask",))
"""The names, in lower case, by which three columns are found to be masks."""
_SPLIT_NUMBERED = re.compile(r"split[_-]?\d+")
_OF_PAIRS = {"edges": ("source", "target", "weight"), "features": ("feature_node", "feature_name", "feature_value")}
"""By what a table has a row for each of: the keys of the two columns that each row has, and of that of its number."""
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

    @property
    def named_features(self) -> Named:
        """The columns of features; none where they are made."""
        return [] if self.made else self.features


@dataclass(frozen=True)
class PairColumns:
    """The columns of a table of edges, of which a row joins two nodes, or of features, of which it joins a node and a
    feature."""

    table: Source
    first: str
    second: str
    number: str | None

    def pieces(self, first: str, second: str) -> Iterator[TablePiece]:
        """The rows, with values of these kinds in the first and in the second column."""
        kinds = {self.first: first, self.second: second}
        return self.table.pieces(kinds if self.number is None else kinds | {self.number: "number"})


@dataclass(frozen=True)
class NodeColumns:
    """The columns of tables of nodes whose rows follow each other; those that are not there are empty."""

    tables: Sequence[Source]
    node: str
    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()  # of training, validation and test nodes
    others: tuple[str, ...] = ()  # that nothing is read from


def pair_columns(tables: Sequence[Source], rows: str, keys: TableKeys) -> list[PairColumns]:
    """The columns of tables of ``rows``, which are edges or features.

    Raises:
        ConfigError: a key names no column of one, or a column is not found, or several are.
        DataError: some tables have a column of numbers, and others have none.
    """
    columns = [_of_pairs(table, rows, keys) for table in tables]
    if len({cols.number is None for cols in columns}) > 1:
        without, key = next(cols.table.name for cols in columns if cols.number is None), _OF_PAIRS[rows][2]
        raise DataError(
            f"{without} has no column of dataset.{key}, and other tables of {rows} have one: add it, or set {key}=[]"
        )
    return columns


def _of_pairs(table: Source, rows: str, keys: TableKeys) -> PairColumns:
    names = list(table.types)
    from_key, to_key, number_key = _OF_PAIRS[rows]
    columns = [_column(table, key, getattr(keys, key), names) for key in (from_key, to_key)]
    if columns == [None, None] and len(names) == 2:
        columns = list(names)
    for key, column in zip((from_key, to_key), columns):
        if column is None:
            raise ConfigError(
                f"{table.name} has no column that is known as the {key.removeprefix('feature_')} of its {rows}: set"
                f" dataset.{key} to one of {_listed(names)}"
            )
    begin, end = columns[0] or "", columns[1] or ""
    if begin == end:
        raise ConfigError(f"dataset.{from_key} and dataset.{to_key} are both {begin}: name two columns of {table.name}")
    rest = [name for name in names if name not in columns]
    check_named(number_key, getattr(keys, number_key), rest, [table])
    numbers = _columns(table, number_key, getattr(keys, number_key), rest)
    if len(numbers) > 1:
        raise _ambiguous(table, number_key, numbers)
    return PairColumns(table, begin, end, numbers[0] if numbers else None)


def node_columns(tables: Sequence[Source], keys: TableKeys) -> list[NodeColumns]:
    """The columns of the tables of nodes; the rows of tables with the same columns follow each other. Columns that a
    key names and a table lacks may be those of another table.

    Raises:
        ConfigError: no column has the ids, or several columns may be what a key has not named.
    """
    groups: dict[frozenset[str], list[Source]] = {}
    for table in tables:
        groups.setdefault(frozenset(table.types), []).append(table)
    return [_of_nodes(group, keys) for group in groups.values()]


def _of_nodes(tables: Sequence[Source], keys: TableKeys) -> NodeColumns:
    table = tables[0]
    names = list(table.types)
    own = _column(table, "node", keys.node, names)
    if own is None:
        raise ConfigError(
            f"{table.name} has no column that is known as the ids of its nodes: set dataset.node to one of"
            f" {_listed(names)}"
        )
    rest = [name for name in names if name != own]
    labels = _columns(table, "label", keys.label, rest)
    rest = [name for name in rest if name not in labels]
    split_columns = [] if keys.split_columns is None and keys.mask_columns else keys.split_columns
    splits = _columns(table, "split_columns", split_columns, rest) or (
        tuple(name for name in rest if _SPLIT_NUMBERED.fullmatch(name.lower())) if split_columns is None else ()
    )
    rest = [name for name in rest if name not in splits]
    masks = _masks(table, [] if keys.mask_columns is None and split_columns is not None else keys.mask_columns, rest)
    rest = [name for name in rest if name not in masks]
    features = _columns(table, "features", keys.named_features, rest)
    features = features or (_numbered(table, rest) if keys.named_features is None else ())
    rest = [name for name in rest if name not in features]
    return NodeColumns(tables, own, features, labels, splits, masks, tuple(rest))


def check_named(key: str, named: Named, columns: Iterable[str], tables: Sequence[Source]) -> None:
    """Refuse a key that names a column which no table has.

    Raises:
        ConfigError: one line with the columns that there are.
    """
    have = list(columns)
    for pattern in named or ():
        if not any(_fits(name, pattern) for name in have):
            names = [name for table in tables for name in table.types]
            raise ConfigError(
                f"dataset.{key}={quoted(pattern)} is no column of {' or '.join(table.name for table in tables)}:"
                f" choose from {_listed(names)}"
            )


def _column(table: Source, key: str, named: str | None, names: Sequence[str]) -> str | None:
    """The column that ``key`` names, or one of ``names`` with a usual name."""
    if named is not None:
        if named not in names:
            raise ConfigError(
                f"dataset.{key}={quoted(named)} is no column of {table.name}: choose from {_listed(names)}"
            )
        return named
    usual = [name for name in names if name.lower() in USUAL[key]]
    if len(usual) > 1:
        raise _ambiguous(table, key, usual)
    return usual[0] if usual else None


def _columns(table: Source, key: str, named: Named, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of ``names`` that ``key`` names, or one with a usual name."""
    if named is None:
        usual = [name for name in names if name.lower() in USUAL[key] and _suits(table, key, name)]
        if len(usual) > 1:
            raise _ambiguous(table, key, usual)
        return tuple(usual)
    return tuple(dict.fromkeys(name for pattern in named for name in names if _fits(name, pattern)))


def _masks(table: Source, named: Named, names: Sequence[str]) -> tuple[str, ...]:
    """The three columns of ``names`` that ``named`` names, or those with usual names; empty: the table has none."""
    if named is None:
        by_mask = [[name for name in names if name.lower() in usual] for usual in _MASKS]
        if not all(by_mask):
            return ()
        if max(map(len, by_mask)) > 1:
            raise _ambiguous(table, "mask_columns", next(some for some in by_mask if len(some) > 1))
        return tuple(name for some in by_mask for name in some)
    lacking = [name for name in named if name not in names]
    if lacking and len(lacking) < len(named):
        raise ConfigError(
            f"dataset.mask_columns={quoted(lacking[0])} is no column of {table.name}, which has others of the three:"
            " one table has all of them, and for nothing else"
        )
    return () if lacking else tuple(named)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _suits(table: Source, key: str, name: str) -> bool:
    """Whether a column with a usual name may be what it is called: features are numbers, or lists of them."""
    return key != "features" or str(table.types[name]) not in TEXTS


def _numbered(table: Source, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that are numbered, such as f_0, f_1, ..., in the order of the table."""
    numbered = [name for name in names if _NUMBERED.fullmatch(name.lower())]
    prefixes = list(dict.fromkeys(re.sub(r"\d+$", "", name) for name in numbered))
    if len(prefixes) > 1:
        raise ConfigError(
            f"{table.name} has several families of columns that may be the features:"
            f' {", ".join(quoted(prefix) + "*" for prefix in prefixes)}: choose dataset.features="{prefixes[0]}*"'
        )
    return tuple(numbered)


def _ambiguous(table: Source, key: str, names: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{table.name} has several columns that may be dataset.{key}: choose one of {_listed(names)}, such as"
        f" dataset.{key}={quoted(names[0])}"
    )


def _listed(names: Iterable[str]) -> str:
    return quoted(", ".join(names))


def refuse_twice(columns: Sequence[NodeColumns]) -> None:
    """Refuse features, labels or a split that two joined tables have.

    Raises:
        DataError: one line with the column.
    """
    seen: dict[str, str] = {}
    for cols in columns:
        table = cols.tables[0]
        for name in (*cols.features, *cols.labels, *cols.splits, *cols.masks):
            if name in seen:
                raise DataError(
                    f"{seen[name]} and {table.name} both have the column {quoted(name)}: rename one of them"
                )
            seen[name] = table.name


def dtype_of_labels(table: Source, column: str) -> Any:
    """The dtype of a column of labels; None: they are texts, or may be.

    Raises:
        DataError: the column holds neither texts nor numbers.
    """
    type_ = table.types[column]
    name = "" if type_ is None else str(type_)
    if type_ is None or "string" in name:
        return None
    if name in ("float", "double", "halffloat"):
        return np.float64
    if "int" not in name and name not in ("bool", "null"):
        raise DataError(
            f"{table.name}, column {quoted(column)} has the type {quoted(name)}: a label is a text or a number"
        )
    return np.int64


def place_of_split(names: Sequence[str], split: int | str | None) -> int:
    """The place of the column that ``dataset.split`` chooses of several; null is the first.

    Raises:
        ConfigError: there is no such column.
    """
    if not isinstance(split, int) or isinstance(split, bool):
        return 0
    if not 0 <= split < len(names):
        cure = f"choose 0 to {len(names) - 1}" if names else "name the columns of splits by dataset.split_columns"
        raise ConfigError(f"dataset.split={split}, and the table has {len(names)} columns of splits: {cure}")
    return split
