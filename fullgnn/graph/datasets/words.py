"""Text files as rows of words, read piece by piece, plain or compressed: numbers and names are found by compiled loops.

Every error names the file and the line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.graph.node_names import Texts
from fullgnn.telemetry.machine import check_fits, free_bytes

CHUNK = 1 << 22  # bytes of text that are read at once, and split at once unless a line is longer
_PER_BYTE = 40  # bytes of memory, at most, that splitting takes for a byte of text
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

WordChoice = slice | np.ndarray
"""Which words of all ``WordRows.start``: a slice, or their numbers."""


class WrongWord(DataError):
    """A word is no number of the kind that is asked for."""

    def __init__(self, message: str, line: int, word: str, is_integer: bool):
        super().__init__(message)
        self.line, self.word, self.is_integer = line, word, is_integer


@dataclass(frozen=True, eq=False)
class WordRows:
    """The rows of a piece of a text file, each of which is a line."""

    file: Path
    text: np.ndarray
    """(num_bytes,) uint8, the piece."""
    start: np.ndarray
    """(num_words,) int64, where in ``text`` each word begins."""
    end: np.ndarray
    """(num_words,) int64, where it ends."""
    first: np.ndarray
    """(num_rows + 1,) int64: row r has the words from ``first[r]`` up to ``first[r + 1]``."""
    line: np.ndarray
    """(num_rows,) int64, the line of each row in the file, from 1."""

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, rows: slice) -> WordRows:
        """Successive rows."""
        begin, stop, _ = rows.indices(len(self))
        words = slice(self.first[begin], self.first[max(begin, stop)])
        first = self.first[begin : max(begin, stop) + 1] - self.first[begin]
        return WordRows(self.file, self.text, self.start[words], self.end[words], first, self.line[rows])

    def columns(self, wanted: Mapping[int, str]) -> int:
        """The number of words that all rows have.

        Args:
            wanted: by each number that a row may have, what its words are, such as ``two ids``.

        Raises:
            DataError: a row has another number of words than the first one, or one that is not wanted.
        """
        counts = np.diff(self.first)
        columns = int(counts[0]) if len(counts) else next(iter(wanted))
        wrong = np.flatnonzero(counts != (columns if columns in wanted else -1))
        if len(wrong):
            row = int(wrong[0])
            number = f"{counts[row]} {'column' if counts[row] == 1 else 'columns'}"
            what = wanted[columns] if columns in wanted else " or ".join(wanted.values())
            raise self.error(row, f"has {number}, and a line has {what}")
        return columns

    def integers(self, words: WordChoice = slice(None)) -> np.ndarray:
        """(num_words,) int64.

        Raises:
            WrongWord: a word is no integer, or none of 64 bits.
        """
        from fullgnn.graph.datasets._words_cpu import NO_INTEGER, integers  # imported here, since it imports numba

        start, end = self.start[words], self.end[words]
        values, wrong = np.empty(len(start), np.int64), np.zeros(2, np.int64)
        integers(self.text, start, end, values, wrong)
        if wrong[1]:
            is_integer = wrong[1] != NO_INTEGER
            why = "is an integer of more than 64 bits" if is_integer else "is no integer"
            raise self._wrong_word(words, int(wrong[0]), why, is_integer)
        return values

    def floats(self, words: WordChoice = slice(None)) -> np.ndarray:
        """(num_words,) float64, finite.

        Raises:
            WrongWord: a word is no number, or it is infinite or NaN.
        """
        import pyarrow

        texts = self.texts(words)
        try:
            values = texts.cast(pyarrow.float64()).to_numpy()
        except pyarrow.ArrowInvalid as error:
            begin, stop = 0, len(texts)
            while stop - begin > 1:  # it holds the first text that is no number
                middle = (begin + stop) // 2
                begin, stop = (begin, middle) if _is_wrong(texts[begin:middle]) else (middle, stop)
            raise self._wrong_word(words, begin, "is no number") from error
        odd = np.flatnonzero(~np.isfinite(values))
        if len(odd):
            raise self._wrong_word(words, int(odd[0]), "is infinite or not a number")
        return values

    def texts(self, words: WordChoice = slice(None)) -> Any:
        """(num_words,) pyarrow large_string.

        Raises:
            WrongWord: a word is not UTF-8.
        """
        import pyarrow

        from fullgnn.graph.datasets._words_cpu import gather  # imported here, since it imports numba

        start, end = self.start[words], self.end[words]
        ends = np.zeros(len(start) + 1, np.int64)
        np.cumsum(end - start, out=ends[1:])
        utf8 = np.empty(int(ends[-1]), np.uint8)
        gather(self.text, start, end, ends, utf8)
        buffers = pyarrow.py_buffer(ends), pyarrow.py_buffer(utf8)
        texts = pyarrow.LargeStringArray.from_buffers(len(start), *buffers)
        if utf8.size and utf8.max() >= 128:
            try:
                texts.validate(full=True)
            except pyarrow.ArrowInvalid as error:
                wrong = next(word for word in range(len(texts)) if _is_no_text(utf8[ends[word] : ends[word + 1]]))
                raise self._wrong_word(words, wrong, "is no text in UTF-8") from error
        return texts

    def is_number(self, word: int) -> bool:
        """Whether a word is a number, which may be infinite or NaN."""
        return not _is_wrong(self.texts(slice(word, word + 1)))

    def word(self, number: int) -> str:
        """One word as an error shows it."""
        shown = self.text[self.start[number] : min(self.end[number], self.start[number] + 1000)]
        return quoted(shown.tobytes().decode(errors="replace"))

    def error(self, row: int, message: str) -> DataError:
        """The error of a row: the file, the line, and the ``message``."""
        return DataError(f"{self.file}, line {self.line[row]} {message}: correct the file")

    def row_of(self, word: int) -> int:
        """The row of a word."""
        return int(np.searchsorted(self.first, word, side="right")) - 1

    def _wrong_word(self, words: WordChoice, number: int, why: str, is_integer: bool = False) -> WrongWord:
        word = range(len(self.start))[words][number] if isinstance(words, slice) else int(words[number])
        row, text = self.row_of(word), self.word(word)
        error = self.error(row, f"has {text!r}, which {why}")
        return WrongWord(str(error), int(self.line[row]), text, is_integer)


def read_rows(file: Path, comments: bytes = b"", separator: str = "", keeps_empty: bool = False) -> Iterator[WordRows]:
    """The rows of a text file, some in each piece; a file with the suffix .gz is unpacked on the way.

    Args:
        comments: the characters with which a line begins that is skipped.
        separator: the character between two words; empty: blanks and tabs, as many as there are.
        keeps_empty: whether a line without a word is a row, with no words.

    Raises:
        DataError: the file cannot be read, or a line is longer than there is memory.
    """
    num_lines = 0
    for piece in _pieces(file):
        rows, lines = rows_in(file, np.frombuffer(piece, np.uint8), comments, separator, keeps_empty, num_lines)
        if len(rows):
            yield rows
        num_lines += lines


def rows_in(
    file: Path, text: np.ndarray, comments: bytes = b"", separator: str = "", keeps_empty: bool = False, before: int = 0
) -> tuple[WordRows, int]:
    """The rows of a text, and the number of its lines; see ``read_rows``.

    Args:
        text: (num_bytes,) uint8.
        before: the number of lines in the file before the text.
    """
    from fullgnn.graph.datasets._words_cpu import split  # imported here, since it imports numba

    ends_word, begins_comment = np.zeros((2, 256), bool)
    ends_word[list(separator.encode() or b" \t")] = True
    begins_comment[list(comments)] = True
    start, end, line, counts = (np.empty(count, np.int64) for count in (len(text) + 1,) * 3 + (3,))
    first = np.empty(len(text) + 2, np.int64)
    split(text, ends_word, begins_comment, keeps_empty, start, end, first, line, counts)
    words, rows, lines = counts.tolist()
    return WordRows(file, text, start[:words], end[:words], first[: rows + 1], line[:rows] + (before + 1)), lines


def arrow_texts(array: Any) -> tuple[np.ndarray, np.ndarray]:
    """(n + 1,) int64 starts of Arrow's large texts, and the uint8 bytes of all of them."""
    _, starts, utf8 = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    ends = np.frombuffer(starts, np.int64)[array.offset : array.offset + len(array) + 1]
    return ends, np.empty(0, np.uint8) if utf8 is None else np.frombuffer(utf8, np.uint8)


def texts_of(array: Any) -> Texts:
    """The texts in a pyarrow array of them.

    Args:
        array: large_string, from its start.
    """
    ends, utf8 = arrow_texts(array)
    return Texts(ends.copy(), utf8[: ends[-1]].copy())


def read_text(file: Path) -> np.ndarray:
    """(num_bytes,) uint8, the content of a text file; one with the suffix .gz is unpacked.

    Raises:
        DataError: the file cannot be read, or holds more text than there is memory to read it.
    """
    cure = "take a machine with more memory, or write the file again if it is damaged"
    pieces, size, most = [], 0, free_bytes() // _PER_BYTE
    with opened_text(file) as stream:
        if file.suffix != ".gz":
            check_fits(_PER_BYTE * file.stat().st_size, str(file), cure)
        while piece := stream.read(CHUNK):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                unpacked = f"{file}, {file.stat().st_size} bytes, unpacks to {size} or more and"
                check_fits(_PER_BYTE * size, unpacked, cure)
    return np.frombuffer(b"".join(pieces), np.uint8)


def _pieces(file: Path) -> Iterator[bytes]:
    """The bytes of a text file, cut where a line ends."""
    with opened_text(file) as stream:
        yield from _cut(file, stream)


@contextmanager
def opened_text(file: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    """The bytes of a text file; one with the suffix .gz is unpacked.

    Raises:
        DataError: the file cannot be opened, or, within the context, be read.
    """
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(f"{file} cannot be read ({quoted(reason)}): write it again, as text") from error


def _cut(file: Path, stream: gzip.GzipFile | BufferedReader) -> Iterator[bytes]:
    rest: list[bytes] = []  # of a line whose end is to come
    size = 0
    is_first = True
    while chunk := stream.read(CHUNK):
        if is_first:
            chunk, is_first = chunk.removeprefix(_BYTE_ORDER_MARK), False
        # A carriage return at the end of the chunk may be half of a line end.
        cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r", 0, len(chunk) - 1)) + 1
        if cut:
            yield b"".join([*rest, chunk[:cut]])
            rest, size = [], 0
        rest.append(chunk[cut:])
        size += len(chunk) - cut
        if size > CHUNK:
            check_fits(_PER_BYTE * size, f"{file}, with a line of {size} bytes or more,", "write it in shorter lines")
    if size:
        yield b"".join(rest)


def _is_wrong(texts: Any) -> bool:
    """Whether one of the texts is no number."""
    import pyarrow

    try:
        texts.cast(pyarrow.float64())
    except pyarrow.ArrowInvalid:
        return True
    return False


def _is_no_text(word: np.ndarray) -> bool:
    """Whether the bytes of a word are not UTF-8, so that some of them are lost when they are decoded."""
    return word.tobytes().decode(errors="ignore").encode() != word.tobytes()
