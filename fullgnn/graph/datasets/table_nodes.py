"""The nodes of a table: their ids in order, and their features, labels and split.

Several tables: those with the same columns follow each other, and their ids differ; a table with other columns is
joined with the first one by the ids, and has each of its nodes once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.graph.datasets.table_columns import NodeColumns
from fullgnn.graph.datasets.table_labels import LabelColumn, SplitColumns
from fullgnn.graph.datasets.table_source import TablePiece
from fullgnn.graph.datasets.table_values import Ids, check_float32, keys_of, numbers_of, text_at, vectors_of
from fullgnn.graph.growing import GrowingArray


@dataclass(frozen=True, eq=False)
class NodeValues:
    """What the tables say of their nodes, in the order of the nodes."""

    features: np.ndarray | None  # (num_nodes, num_features) float32
    labels: list[LabelColumn]
    # By column, or by the first of three masks; each (num_nodes,) int8: 0 train, 1 val, 2 test, -1 none.
    splits: dict[str, np.ndarray]


def read_nodes(columns: Sequence[NodeColumns], ids: Ids, kind: str) -> NodeValues:
    """Number the nodes of the first tables, in their order, and read what all tables say of them.

    Args:
        ids: empty.
        kind: of the ids.

    Raises:
        DataError: a value is missing or wrong; the message names the table, the row and the column.
    """
    features: list[np.ndarray] = []
    labels: list[LabelColumn] = []
    splits: dict[str, np.ndarray] = {}
    for number, cols in enumerate(columns):
        group = _Group(cols, kind)
        places = group.read(ids, joined=number > 0)
        if group.features is not None:
            features.append(_in_order(group.features.taken(), places))
        for label in group.labels:
            if places is not None:
                label.rearrange(places)
            labels.append(label)
        for split in group.splits:
            splits[split.column] = _in_order(split.finish(), places)
    matrix = features[0] if len(features) == 1 else np.concatenate(features, axis=1) if features else None
    return NodeValues(matrix, labels, splits)


class _Group:
    """Tables whose rows follow each other, and what is collected from them."""

    def __init__(self, columns: NodeColumns, kind: str):
        self._columns, table = columns, columns.tables[0]
        self.labels = [LabelColumn(table, name) for name in columns.labels]
        self.splits = [SplitColumns([name]) for name in columns.splits]
        self.splits += [SplitColumns(columns.masks)] if columns.masks else []
        self.features: GrowingArray | None = None
        types = [(name, str(table.types[name])) for name in columns.features]
        self._lists = [name for name, type_ in types if "list" in type_]
        if self._lists and len(types) > 1:
            raise DataError(
                f"{table.name}, column {quoted(self._lists[0])} has lists: it is the only column of features, or"
                " none of them"
            )
        self._kinds = {columns.node: kind} | {name: "number" for name in columns.features if name not in self._lists}
        self._kinds |= dict.fromkeys(self._lists, "stored")
        for column in self._columns_of_nodes:
            self._kinds |= column.kinds

    @property
    def _columns_of_nodes(self) -> list[LabelColumn | SplitColumns]:
        return [*self.labels, *self.splits]

    def read(self, ids: Ids, joined: bool) -> np.ndarray | None:
        """Read all rows.

        Args:
            joined: whether the ids are those of another group.

        Returns:
            (num_nodes,) int64 the row of each node; None: row i is that of node i.
        """
        codes = GrowingArray(np.int32)
        seen = np.zeros(len(ids), bool)
        for table in self._columns.tables:
            for piece in table.pieces(self._kinds):
                keys, before = keys_of(piece, self._columns.node), len(ids)
                numbers = ids.find(*keys) if joined else ids.number(*keys)
                if joined:
                    self._check_joined(piece, numbers, seen)
                    codes.add(len(numbers))[:] = numbers
                elif len(ids) != before + len(numbers):
                    self._refuse(piece, (numbers < before) | _repeats(numbers))
                self._take(piece)
        if not joined:
            return None
        if not seen.all():
            raise DataError(
                f"{self._columns.tables[0].name} lacks {np.count_nonzero(~seen)} nodes of the first table of nodes:"
                " give every node a row in both"
            )
        places = np.empty(len(ids), np.int64)
        places[codes.rows] = np.arange(codes.length)
        return places

    def _take(self, piece: TablePiece) -> None:
        for column in self._columns_of_nodes:
            column.add(piece)
        if not self._columns.features:
            return
        if self._lists:
            columns = [vectors_of(piece, self._lists[0])]
        else:
            columns = [numbers_of(piece, name, "a feature") for name in self._columns.features]
        width = columns[0].shape[1] if self._lists else len(columns)
        if self.features is None:
            self.features = GrowingArray(np.float32, (width,))
        elif self.features.space.shape[1] != width:
            raise DataError(
                f"{piece.where(0, self._lists[0])} has {width} features, and the rows before it have"
                f" {self.features.space.shape[1]}: give every node as many"
            )
        rows = self.features.add(len(columns[0]))
        for place, values in enumerate(columns):
            check_float32(piece, self._columns.features[place], values)
            rows[:, slice(None) if self._lists else place] = values

    def _check_joined(self, piece: TablePiece, codes: np.ndarray, seen: np.ndarray) -> None:
        """Refuse ids that the first group does not have, and those that have had a row before."""
        name = self._columns.node
        if (codes < 0).any():
            row = int((codes < 0).argmax())
            raise DataError(
                f"{piece.where(row, name)} has the node {self._id(piece, row)}, which the first table of nodes does not"
                " have: add it there, or take it out"
            )
        again = seen[codes] | _repeats(codes)
        if again.any():
            self._refuse(piece, again)
        seen[codes] = True

    def _refuse(self, piece: TablePiece, again: np.ndarray) -> None:
        """Refuse the first of the ids that are there ``again``, (n,) bool."""
        row = int(again.argmax())
        raise DataError(
            f"{piece.where(row, self._columns.node)} has the node {self._id(piece, row)} again: a node has one row"
        )

    def _id(self, piece: TablePiece, row: int) -> str:
        return text_at(piece.columns[self._columns.node], row)


def _repeats(codes: np.ndarray) -> np.ndarray:
    """(n,) bool, which codes stand earlier in ``codes`` as well."""
    again = np.ones(len(codes), bool)
    again[np.unique(codes, return_index=True)[1]] = False
    return again


def _in_order(rows: np.ndarray, places: np.ndarray | None) -> Any:
    return rows if places is None else rows[places]
