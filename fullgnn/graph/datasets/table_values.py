"""The values of a column in a piece of a table as NumPy arrays; what is missing or wrong is told by row and column."""

from typing import Any

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.graph.datasets.table_source import TablePiece
from fullgnn.graph.datasets.words import arrow_texts
from fullgnn.graph.ids import IntegerIds, TextIds

NO_NODE = "the table of nodes does not have"
"""What is said of an id; see ``codes_of``."""
_FLOAT32 = np.finfo(np.float32).max

Ids = IntegerIds | TextIds


def ids_of(kind: str) -> Ids:
    """Where ids of the kind ``integer`` or ``text`` are numbered."""
    return IntegerIds() if kind == "integer" else TextIds()


def keys_of(piece: TablePiece, column: str, what: str = "id") -> tuple[np.ndarray, ...]:
    """The ids in a column as the arguments of ``IntegerIds.find`` or ``TextIds.find``.

    Args:
        what: each of them is, for messages.

    Raises:
        DataError: one is missing or empty.
    """
    array = piece.columns[column]
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else np.zeros(0, bool)
    keys: tuple[np.ndarray, ...]
    if str(array.type) == "int64":
        keys = (array.fill_null(0).to_numpy(zero_copy_only=False),)
    else:
        keys = arrow_texts(array)
        empty = np.diff(keys[0]) == 0
        missing = missing | empty if len(missing) else empty
    if missing.any():
        raise DataError(f"{piece.where(int(missing.argmax()), column)} has no {what}: write it, or take the row out")
    return keys


def codes_of(piece: TablePiece, column: str, ids: Ids, unknown: str, lack: str) -> np.ndarray:
    """(n,) int32 numbers of the nodes in a column, -1 where they are unknown and dropped.

    Args:
        unknown: what happens to a row whose node has no number: refuse, add or drop.
        lack: who does not have such a node, for messages.

    Raises:
        DataError: an id is missing, or is unknown and refused.
    """
    keys: Any = keys_of(piece, column)
    if unknown == "add":
        return ids.number(*keys)
    codes = ids.find(*keys)
    if unknown == "refuse" and (codes < 0).any():
        row = int((codes < 0).argmax())
        raise DataError(
            f"{piece.where(row, column)} has the node {text_at(piece.columns[column], row)}, which {lack}: correct it,"
            " or choose dataset.unknown_nodes=drop (such rows) or add (such nodes)"
        )
    return codes


def text_at(array: Any, row: int) -> str:
    """A value of an Arrow array, as a message shows it."""
    return quoted(array[row].as_py())


def numbers_of(piece: TablePiece, column: str, what: str) -> np.ndarray:
    """(n,) the finite numbers in a column, of a floating dtype.

    Args:
        what: they are, for messages.

    Raises:
        DataError: a number is missing, or is not finite.
    """
    values = piece.columns[column].to_numpy(zero_copy_only=False)  # missing ones are NaN
    values = values if values.dtype.kind == "f" else values.astype(np.float64)
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(wrong.argmax())
        content = "no value" if np.isnan(values[row]) else f"the value {values[row]}"
        raise DataError(f"{piece.where(row, column)} has {content} for {what}: correct it, or take it out")
    return values


def check_float32(piece: TablePiece, column: str, values: np.ndarray) -> None:
    """Refuse features, (n,) or (n, length), that float32 has no room for.

    Raises:
        DataError: one line with the row of the first one.
    """
    if values.dtype == np.float64 and values.size and max(-values.min(), values.max()) > _FLOAT32:
        row = int((np.abs(values.reshape(len(values), -1)) > _FLOAT32).any(axis=1).argmax())
        raise DataError(f"{piece.where(row, column)} has a feature beyond float32: scale the features")


def vectors_of(piece: TablePiece, column: str) -> np.ndarray:
    """(n, length) the vectors in a column of lists.

    Raises:
        DataError: a list is missing, has another length than the first one, or holds what is no finite number.
    """
    array = piece.columns[column]
    if array.null_count:
        row = int(array.is_null().to_numpy(zero_copy_only=False).argmax())
        raise DataError(f"{piece.where(row, column)} has no list of features: give every node one")
    lengths = array.value_lengths().to_numpy(zero_copy_only=False)
    wrong = lengths != lengths[:1]
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{piece.where(row, column)} has {lengths[row]} features, and the first row has {lengths[0]}: give every"
            " node as many"
        )
    flat = array.flatten()
    if str(flat.type) not in ("float", "double", "halffloat", "bool") and "int" not in str(flat.type):
        raise DataError(
            f"{piece.source.name}, column {quoted(column)} has lists of {quoted(flat.type)}: features are numbers"
        )
    width = int(lengths[0]) if len(lengths) else 0
    values = flat.to_numpy(zero_copy_only=False).reshape(len(lengths), width)
    values = values if values.dtype.kind in "iufb" else values.astype(np.float64)
    wrong = ~np.isfinite(values.astype(np.float64 if values.dtype == bool else values.dtype)).all(axis=1)
    if wrong.any():
        raise DataError(
            f"{piece.where(int(wrong.argmax()), column)} has a feature that is missing or not finite: correct it"
        )
    return values
