"""Integers in text files, plain or compressed, read all at once and with an eye on the memory."""

from pathlib import Path

import numpy as np

from fullgnn.errors import quoted
from fullgnn.graph.datasets.words import opened_text
from fullgnn.telemetry.machine import check_fits, free_bytes

_CHUNK = 1 << 22  # bytes that are unpacked at once
_PER_BYTE = 40  # bytes of memory, at most, that reading takes for a byte of text
_BLANKS = b"\n\r\t "


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
        while piece := stream.read(_CHUNK):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                unpacked = f"{file}, {file.stat().st_size} bytes, unpacks to {size} or more and"
                check_fits(_PER_BYTE * size, unpacked, cure)
    return np.frombuffer(b"".join(pieces), np.uint8)


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
