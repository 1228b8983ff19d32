"""Labels and splits of nodes, collected from the columns of a table. A split is one column with the names of the parts,
or three masks."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.graph.datasets.table_columns import dtype_of_labels
from fullgnn.graph.datasets.table_source import Source, TablePiece
from fullgnn.graph.datasets.table_values import text_at
from fullgnn.graph.datasets.words import arrow_texts
from fullgnn.graph.growing import GrowingArray
from fullgnn.graph.ids import TextIds, ranks_in
from fullgnn.graph.labels import MAX_CLASSES
from fullgnn.graph.masks import PART_OF_WORD

UNKNOWN = ("", "na", "n/a", "nan", "null", "none")
"""Texts, in lower case, that stand for no label, and for no part of the split."""
BITS = {"true": 1, "1": 1, "1.0": 1, "false": 0, "0": 0, "0.0": 0}
"""The values of a mask, in lower case."""


class LabelColumn:
    """A column of labels. Its values are numbers, or texts of which each different one is kept once."""

    def __init__(self, table: Source, column: str):
        dtype = dtype_of_labels(table, column)
        self.column, self._where = column, table.name
        self.kind = "text" if dtype is None else "stored"
        self.kinds = {column: self.kind}
        self._texts = TextIds()
        self._values = GrowingArray(np.int32 if dtype is None else dtype)
        self._known = GrowingArray(bool)

    def add(self, piece: TablePiece) -> None:
        """Append the labels of a piece."""
        array = piece.columns[self.column]
        self._known.add(len(array))[:] = array.is_valid().to_numpy(zero_copy_only=False)
        if self.kind == "text":
            self._values.add(len(array))[:] = self._texts.number(*arrow_texts(array))
            return
        numbers = array.cast("int64") if str(array.type) in ("null", "bool") else array
        self._values.add(len(array))[:] = numbers.fill_null(0).to_numpy(zero_copy_only=False)

    def rearrange(self, places: np.ndarray) -> None:
        """Put the label that is at ``places[i]`` at place i."""
        for array in (self._values, self._known):
            array.rows[:] = array.rows[places]

    def finish(self) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
        """The values, which of them are known, and the texts by number where the values are texts, in their order."""
        values, known = self._values.taken(), self._known.taken()
        if self.kind == "stored":
            return values, known & ~np.isnan(values) if values.dtype.kind == "f" else known, None
        numbers = _numbers_of_texts(self._texts)
        if numbers is not None:
            by_text, is_known = numbers
            return by_text[values], known & is_known[values], None
        if len(self._texts) > MAX_CLASSES:
            raise DataError(f"{self._where}, column {quoted(self.column)} has more than {MAX_CLASSES} different labels")
        texts = self._texts.names.tolist()
        known &= np.array([text.strip().lower() not in UNKNOWN for text in texts])[values]
        order = self._texts.in_order()
        return ranks_in(order, np.int64)[values], known, [texts[code] for code in order.tolist()]


def labels_of(
    columns: Sequence[LabelColumn], label_type: str | None
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """The labels of all nodes as a ``Graph`` takes them, and the names of the classes.

    One column: texts are classes in the order of the texts. Integers are classes too; if they are not 0, 1, ..., with
    -1 where a label is unknown, they are classes in ascending order, and name them. Other numbers are values.
    Several columns: each is one label, 0 or 1, or one value, and its name is that of the label.

    Args:
        label_type: ``number``: integers are values; ``class``: all numbers are classes; None: as above.
    """
    if not columns:
        return None, None
    parts = [column.finish() for column in columns]
    if len(columns) > 1:
        for column, (_, _, texts) in zip(columns, parts):
            if texts is not None:
                raise DataError(
                    f"column {quoted(column.column)} has texts, and one of several columns of labels is 0 or 1, or a"
                    " number: choose one column by dataset.label"
                )
        values, known = np.stack([part[0] for part in parts], axis=1), np.stack([part[1] for part in parts], axis=1)
        whole = values.dtype.kind in "ib" and not (known & ((values < -1) | (values > 1))).any()
        if whole and label_type != "number":
            return np.where(known, values, -1).astype(np.int8), tuple(column.column for column in columns)
        return np.where(known, values, np.nan), tuple(column.column for column in columns)
    values, known, texts = parts[0]
    if label_type == "number":
        if texts is not None:
            raise DataError(
                f"column {quoted(columns[0].column)} has texts such as {quoted(texts[0])}: they are no numbers, so"
                " leave out dataset.label_type=number"
            )
        return np.where(known, values, np.nan), None
    if texts is None and values.dtype.kind == "f" and label_type != "class":
        return np.where(known, values, np.nan), None
    if values.dtype.kind == "i" and texts is None:
        known = known & (values != -1)
    distinct = np.unique(values[known])  # without the texts that stand for no label
    if texts is not None:
        names = tuple(texts[code] for code in distinct.tolist())
    elif len(distinct) > MAX_CLASSES:
        raise DataError(
            f"column {quoted(columns[0].column)} has {len(distinct)} different integers, too many for classes: set"
            " dataset.label_type=number"
        )
    elif values.dtype.kind == "i" and np.array_equal(distinct, np.arange(len(distinct))):
        return np.where(known, values, -1), None
    else:
        names = tuple(f"{value:g}" if values.dtype.kind == "f" else str(value) for value in distinct.tolist())
    return np.where(known, np.searchsorted(distinct, values), -1), names


def _numbers_of_texts(texts: TextIds) -> tuple[np.ndarray, np.ndarray] | None:
    """The numbers that all texts are, int64 if all are integers, and which are known; None: they are not numbers."""
    import pyarrow
    import pyarrow.compute as compute

    with suppress(pyarrow.ArrowException):  # no valid Unicode
        array = compute.utf8_trim_whitespace(texts.names.to_arrow())
        unknown = compute.is_in(compute.utf8_lower(array), pyarrow.array(UNKNOWN, array.type))
        array = compute.if_else(unknown, pyarrow.scalar(None, array.type), array)
        if array.null_count == len(array):
            return None
        for type_ in (pyarrow.int64(), pyarrow.float64()):
            try:
                numbers = array.cast(type_)
            except pyarrow.ArrowInvalid:
                continue
            known = numbers.is_valid().to_numpy(zero_copy_only=False)
            return numbers.fill_null(0).to_numpy(zero_copy_only=False), known
    return None


class SplitColumns:
    """The part of the split of each node: in one column its name, or in three whether a node is for training, for
    validation, and for testing."""

    def __init__(self, columns: Sequence[str]):
        self.column, are_masks = columns[0], len(columns) > 1
        self.kinds = dict.fromkeys(columns, "stored" if are_masks else "text")
        rule = "a mask is true or false, 1 or 0, or nothing" if are_masks else "a split is train, val, test or nothing"
        self._words = [_Words(column, BITS if are_masks else PART_OF_WORD, rule) for column in columns]
        self._parts = GrowingArray(np.int8)

    def add(self, piece: TablePiece) -> None:
        """Append the parts of a piece.

        Raises:
            DataError: a text is no name of a part, a value is none of a mask, or a node is in two parts.
        """
        parts = self._words[0].numbers(piece) if len(self._words) == 1 else self._of_masks(piece)
        self._parts.add(len(parts))[:] = parts

    def finish(self) -> np.ndarray:
        """(n,) int8: 0 train, 1 val, 2 test, -1 none."""
        return self._parts.taken()

    def _of_masks(self, piece: TablePiece) -> np.ndarray:
        inside = np.stack([mask.numbers(piece) == 1 for mask in self._words])
        twice = inside.sum(axis=0) > 1
        if twice.any():
            row = int(twice.argmax())
            first, second = (self._words[part].column for part in np.flatnonzero(inside[:, row])[:2])
            raise DataError(
                f"{piece.where(row, first)} is true, and so is column {quoted(second)}: a node belongs to one part of"
                " the split at most"
            )
        return np.where(inside.any(axis=0), inside.argmax(axis=0), -1)


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

    def numbers(self, piece: TablePiece) -> np.ndarray:
        """(n,) int8 the number of each word of a piece; -1: there is no word.

        Raises:
            DataError: a word stands for no number.
        """
        array = self._as_texts(piece)
        codes, missing = self._texts.number(*arrow_texts(array)), array.is_null().to_numpy(zero_copy_only=False)
        for code in range(len(self._known), len(self._texts)):
            row = int((codes == code).argmax())
            text = str(array[row].as_py() or "").strip().lower()
            if text not in self._numbers and text not in UNKNOWN:
                raise DataError(f"{piece.where(row, self.column)} has {text_at(array, row)!r}: {self._rule}")
            self._known.append(self._numbers.get(text, -1))
        return np.where(missing, -1, np.array(self._known or [-1], np.int8)[codes])

    def _as_texts(self, piece: TablePiece) -> Any:
        import pyarrow

        array = piece.columns[self.column]
        try:
            return array.cast(pyarrow.large_string())
        except pyarrow.ArrowException as error:
            raise DataError(
                f"{piece.source.name}, column {quoted(self.column)} has the type {quoted(array.type)}: {self._rule}"
            ) from error
