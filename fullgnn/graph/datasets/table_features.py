"""Features from a table of which each row is one number: a node, a feature, and a value, which is 1 without a column.

They become a sparse matrix, and are never an array of all nodes and features. A row takes 8 bytes, and 4 more for its
value, until all have arrived, and then 8 more of the matrix.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from fullgnn.errors import DataError
from fullgnn.graph.datasets.table_columns import PairColumns
from fullgnn.graph.datasets.table_source import ROWS_AT_ONCE, TablePiece, WrongValue
from fullgnn.graph.datasets.table_values import Ids, check_float32, codes_of, keys_of, numbers_of
from fullgnn.graph.growing import GrowingArray
from fullgnn.graph.ids import TextIds, ranks_in
from fullgnn.telemetry.machine import check_fits

_BYTES_OF_ROW = 20
_MOST_COLUMNS = (1 << 31) - 1


class SparseFeatures:
    """The rows of tables of features.

    Features that are all integers are the numbers of columns; otherwise they are texts, and the columns are in the
    order of the texts.

    Args:
        columns: all have a value, or none has.
        num_columns: how many columns there are, where features are integers; None: as many as the largest one needs.
    """

    def __init__(self, columns: Sequence[PairColumns], num_columns: int | None):
        self._columns, self._num_columns, self._name = columns, num_columns, columns[0].table.name
        self._names: TextIds | None = None
        self.num_dropped = 0
        """Rows whose node is not known, and that were left out."""

    def read(self, ids: Ids, kind: str, unknown: str, lack: str) -> None:
        """Read all rows.

        Args:
            ids: the numbers of the nodes; nodes that are added get the next ones.
            kind: of the ids.
            unknown, lack: see ``codes_of``.

        Raises:
            DataError: a value is missing or wrong; the message names the table, the row and the column.
        """
        num_rows = sum(cols.table.num_rows or 0 for cols in self._columns)
        check_fits(_BYTES_OF_ROW * num_rows, f"{self._name} with {num_rows} rows", "take a machine with more memory")
        if not any("string" in str(cols.table.types[cols.second]) for cols in self._columns):
            try:
                return self._read(ids, kind, unknown, lack)
            except WrongValue as error:
                if not error.of_id or error.column not in {cols.second for cols in self._columns}:
                    raise
        if self._num_columns is not None:
            raise DataError(
                f"{self._name} has features that are texts, and dataset.feature_channels is the number of columns of"
                " features that are integers: leave it out"
            )
        self._names = TextIds()
        self._read(ids, kind, unknown, lack)

    def finish(self, num_nodes: int, number: np.ndarray | None) -> tuple[csr_array, dict[str, int]]:
        """The features, (num_nodes, num_features) float32, and the remarks. The values of equal rows are added.

        Args:
            number: (num_nodes,) the number of each node by the one it had; None: as it is.

        Raises:
            DataError: a sum is beyond float32.
        """
        node, feature = self._node.taken(), self._feature.taken()
        if number is not None:
            _renumber(node, number)
        if self._names is None:
            num_columns = int(feature.max(initial=-1)) + 1 if self._num_columns is None else self._num_columns
        else:
            num_columns = len(self._names)
            _renumber(feature, ranks_in(self._names.in_order()))
        num_unused = num_columns - _num_distinct(feature, num_columns)
        value = np.ones(len(node), np.float32) if self._value is None else self._value.taken()
        entries = coo_array((value, (node, feature)), shape=(num_nodes, num_columns))
        features = entries.tocsr()
        if not np.isfinite(features.data).all():
            raise DataError(
                f"{self._name} has rows of the same node and feature, whose sum is beyond float32: scale the features"
            )
        remarks = {
            "merged_features": len(node) - features.nnz,
            "unknown_features": self.num_dropped,
            "featureless_nodes": int(np.count_nonzero(np.diff(features.indptr) == 0)),
            "unused_features": num_unused if self._num_columns is None and 2 * num_unused > num_columns else 0,
        }
        features.eliminate_zeros()
        return features, remarks

    def _read(self, ids: Ids, kind: str, unknown: str, lack: str) -> None:
        self._node, self._feature, self.num_dropped = GrowingArray(np.int32), GrowingArray(np.int32), 0
        self._value = None if self._columns[0].number is None else GrowingArray(np.float32)
        for cols in self._columns:
            for piece in cols.pieces(kind, "integer" if self._names is None else "text"):
                node, feature = codes_of(piece, cols.first, ids, unknown, lack), self._codes(piece, cols.second)
                kept: Any = node >= 0 if unknown == "drop" else slice(None)
                num_kept = len(node[kept])
                self.num_dropped += len(node) - num_kept
                if self._value is not None and cols.number is not None:
                    value = numbers_of(piece, cols.number, "a feature")
                    check_float32(piece, cols.number, value)
                    self._value.add(num_kept)[:] = value[kept]
                self._node.add(num_kept)[:] = node[kept]
                self._feature.add(num_kept)[:] = feature[kept]
        if not self._node.length and not self.num_dropped:
            raise DataError(f"{self._name} has no row: a table of features has one for each number")

    def _codes(self, piece: TablePiece, column: str) -> np.ndarray:
        """(n,) the columns of integers, or the numbers of texts by the order in which they arrive."""
        keys = keys_of(piece, column, "feature")
        if self._names is not None:
            starts, utf8 = keys
            return self._names.number(starts, utf8)
        (codes,) = keys
        most = _MOST_COLUMNS if self._num_columns is None else self._num_columns
        wrong = (codes < 0) | (codes >= most)
        if wrong.any():
            row = int(wrong.argmax())
            cure = "write features with other numbers as texts, such as f-1"
            if self._num_columns is not None:
                cure = f"correct it, or set another dataset.feature_channels than {self._num_columns}"
            raise DataError(
                f"{piece.where(row, column)} has the feature {codes[row]}, and features that are integers are numbers"
                f" of columns, from 0 to {most - 1}: {cure}"
            )
        return codes


def _renumber(codes: np.ndarray, number: np.ndarray) -> None:
    """Write ``number[code]`` in the place of each code."""
    for some in _pieces(codes):
        some[:] = number[some]


def _num_distinct(columns: np.ndarray, num_columns: int) -> int:
    if num_columns > 8 * len(columns):  # a mark for each column would be larger than the matrix
        return len(np.unique(columns))
    marks = np.zeros(num_columns, bool)
    for some in _pieces(columns):
        marks[some] = True
    return int(np.count_nonzero(marks))


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Views of some elements at once: NumPy copies an array of indices to 8 bytes for each."""
    return (array[first : first + ROWS_AT_ONCE] for first in range(0, len(array), ROWS_AT_ONCE))
