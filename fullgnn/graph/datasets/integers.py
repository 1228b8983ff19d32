"""Integers in text files, plain or compressed, read all at once and with an eye on the memory."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.telemetry.machine import check_fits, free_bytes

_CHUNK = 1 << 22  # bytes that are unpacked at once
_PER_BYTE = 40  # bytes of memory, at most, that reading takes for a byte of text
_MAX_DIGITS = 18  # that always fit int64
_BLANKS = b"\n\r\t "


@dataclass(frozen=True, eq=False)
class Integers:
    """The integers of a text, in its order."""

    values: np.ndarray  # (n,) int64
    line: np.ndarray  # (n,) int64, the line of each, from 0


def read_text(file: Path) -> np.ndarray:
    """(num_bytes,) uint8, the content of a text file; one with the suffix .gz is unpacked.

    Raises:
        DataError: the file cannot be read, or holds more text than there is memory to read it.
    """
    cure = "take a machine with more memory, or write the file again if it is damaged"
    try:
        if file.suffix != ".gz":
            check_fits(_PER_BYTE * file.stat().st_size, str(file), cure)
            return np.fromfile(file, np.uint8)
        pieces, size, most = [], 0, free_bytes() // _PER_BYTE
        with gzip.open(file) as stream:
            while piece := stream.read(_CHUNK):
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    check_fits(
                        _PER_BYTE * size, f"{file}, {file.stat().st_size} bytes, unpacks to {size} or more and", cure
                    )
        return np.frombuffer(b"".join(pieces), np.uint8)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(f"{file} cannot be read ({quoted(reason)}): write it again, as text") from error


def integers_of(text: np.ndarray) -> Integers:
    """The integers of a text, apart by blanks and line ends.

    Args:
        text: (num_bytes,) uint8.

    Raises:
        ValueError: there is something else, or an integer beyond int64; the message has it, and its line.
    """
    is_part = ~_is_any(text, _BLANKS)
    edges = np.flatnonzero(np.diff(is_part, prepend=False, append=False))
    start, end = edges[::2], edges[1::2]
    line = np.searchsorted(line_ends(text), start)
    negative = text[start] == ord("-")
    signed = negative | (text[start] == ord("+"))
    digits = end - start - signed
    is_part &= (text < ord("0")) | (text > ord("9"))
    is_part[start[signed & (digits > 0)]] = False
    if is_part.any():
        wrong = int(np.searchsorted(start, is_part.argmax(), side="right")) - 1
        raise ValueError(_problem(text, start, end, line, wrong, "is no integer"))
    values = np.zeros(len(start), np.int64)
    for place in range(min(_MAX_DIGITS, int(digits.max(initial=0)))):
        some = digits > place
        at = (start + signed + place)[some]
        values[some] = values[some] * 10 + (text[at] - ord("0"))
    values[negative] *= -1
    for index in np.flatnonzero(digits > _MAX_DIGITS).tolist():
        number = int(text[start[index] : end[index]].tobytes()) if digits[index] < 4000 else 2**63
        if not -(2**63) <= number < 2**63:
            raise ValueError(_problem(text, start, end, line, index, "is beyond int64"))
        values[index] = number
    return Integers(values, line)


def line_ends(text: np.ndarray) -> np.ndarray:
    """The places of the line ends: of a line feed, and of a carriage return without one."""
    feeds = text == ord("\n")
    returns = text == ord("\r")
    returns[:-1] &= ~feeds[1:]
    return np.flatnonzero(feeds | returns)


def rows_of(file: Path, columns: int) -> np.ndarray:
    """(num_lines, columns) int64 of a text file with as many integers in each line, separated by commas. Empty lines do
    not count.

    Raises:
        DataError: the file cannot be read.
        ValueError: it holds something else.
    """
    text = read_text(file)
    strange = ~_is_any(text, b"0123456789+-," + _BLANKS)  # numpy would drop what follows #, and read 1.7 as 1
    if strange.any():
        place = int(strange.argmax())
        around = quoted(text[max(0, place - 10) : place + 10].tobytes().decode("latin1"))
        raise ValueError(f"line {np.searchsorted(line_ends(text), place) + 1} has other things than integers: {around}")
    if not text.size or text.max() <= ord(","):  # has no digit
        return np.empty((0, columns), np.int64)
    try:
        rows = np.loadtxt(file, dtype=np.int64, delimiter=",", comments=None, ndmin=2)
    except ValueError as error:
        raise ValueError(quoted(error)) from error
    if rows.shape[1] != columns:
        raise ValueError(f"a line has {rows.shape[1]} numbers")
    return rows


def _is_any(text: np.ndarray, characters: bytes) -> np.ndarray:
    """(num_bytes,) bool, which bytes are one of ``characters``."""
    table = np.zeros(256, bool)
    table[list(characters)] = True
    return table[text]


def _problem(text: np.ndarray, start: np.ndarray, end: np.ndarray, line: np.ndarray, index: int, what: str) -> str:
    token = text[start[index] : min(end[index], start[index] + 1000)].tobytes().decode("latin1")
    return f"line {line[index] + 1}: {quoted(token)!r} {what}"
