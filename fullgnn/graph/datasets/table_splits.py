"""Splits of nodes, collected from the columns of a table: one column with the names of the parts, or three masks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError, quoted
from fullgnn.graph.datasets.table_labels import UNKNOWN
from fullgnn.graph.datasets.table_source import Piece
from fullgnn.graph.datasets.table_values import text_at, texts_of
from fullgnn.graph.growing import GrowingArray
from fullgnn.graph.ids import TextIds

PARTS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2}
"""The names of the parts of a split, in lower case."""
BITS = {"true": 1, "1": 1, "1.0": 1, "false": 0, "0": 0, "0.0": 0}
"""The values of a mask, in lower case."""


class SplitColumn:
    """A column with the part of the split of each node: train, val, test or nothing."""

    def __init__(self, column: str):
        self.column, self.kinds = column, {column: "text"}
        self._words = _Words(column, PARTS, "a split is train, val, test or nothing")
        self._parts = GrowingArray(np.int8)

    def add(self, piece: Piece) -> None:
        """Append the parts of a piece.

        Raises:
            DataError: a text is no name of a part.
        """
        parts = self._words.numbers(piece)
        self._parts.add(len(parts))[:] = parts

    def finish(self) -> np.ndarray:
        """(n,) int8: 0 train, 1 val, 2 test, -1 none."""
        return self._parts.taken()


class MaskColumns(SplitColumn):
    """Three columns, which say whether a node is for training, for validation, and for testing."""

    def __init__(self, columns: Sequence[str]):
        self.column, self.kinds = columns[0], dict.fromkeys(columns, "stored")
        self._masks = [_Words(one, BITS, "a mask is true or false, 1 or 0, or nothing") for one in columns]
        self._parts = GrowingArray(np.int8)

    def add(self, piece: Piece) -> None:
        """Append the parts of a piece.

        Raises:
            DataError: a value is none of a mask, or a node is in two parts.
        """
        inside = np.stack([mask.numbers(piece) == 1 for mask in self._masks])
        twice = inside.sum(axis=0) > 1
        if twice.any():
            row = int(twice.argmax())
            first, second = (self._masks[part].column for part in np.flatnonzero(inside[:, row])[:2])
            raise DataError(
                f"{piece.where(row, first)} is true, and so is column {quoted(second)}: a node belongs to one part of"
                " the split at most"
            )
        self._parts.add(inside.shape[1])[:] = np.where(inside.any(axis=0), inside.argmax(axis=0), -1)


class _Words:
    """A column of a few different words, each of which stands for a number.

    Args:
        numbers: by word, in lower case.
        rule: which words there are, for messages.
    """

    def __init__(self, column: str, numbers: Mapping[str, int], rule: str):
        self.column, self._numbers, self._rule = column, numbers, rule
        self._texts = TextIds()
        self._known: list[int] = []  # number, by that of the text

    def numbers(self, piece: Piece) -> np.ndarray:
        """(n,) int8 the number of each word of a piece; -1: there is no word.

        Raises:
            DataError: a word stands for no number.
        """
        array = self._as_texts(piece)
        codes, missing = self._texts.number(*texts_of(array)), array.is_null().to_numpy(zero_copy_only=False)
        for code in range(len(self._known), len(self._texts)):
            row = int((codes == code).argmax())
            text = str(array[row].as_py() or "").strip().lower()
            if text not in self._numbers and text not in UNKNOWN:
                raise DataError(f"{piece.where(row, self.column)} has {text_at(array, row)!r}: {self._rule}")
            self._known.append(self._numbers.get(text, -1))
        return np.where(missing, -1, np.array(self._known or [-1], np.int8)[codes])

    def _as_texts(self, piece: Piece) -> Any:
        import pyarrow

        array = piece.columns[self.column]
        try:
            return array.cast(pyarrow.large_string())
        except pyarrow.ArrowException as error:
            raise DataError(
                f"{piece.source.name}, column {quoted(self.column)} has the type {quoted(array.type)}: {self._rule}"
            ) from error


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
