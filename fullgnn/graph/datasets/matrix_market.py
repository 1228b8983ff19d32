"""Sparse matrices in the text format Matrix Market (``.mtx``), as the SuiteSparse Matrix Collection publishes graphs.

Format: Boisvert, Pozo, Remington, "The Matrix Market exchange formats" (NIST, 1996). The first line names the object,
the layout (``coordinate`` or ``array``), the numbers (``real``, ``integer`` or ``pattern``) and the symmetry
(``general`` or ``symmetric``, of which the file has the lower triangle). Lines that begin with ``%`` are comments. Then
comes the size, and an entry a line: row and column, which count from 1, and a number unless it is a pattern; of an
``array`` the numbers of all entries, column by column.

As networkx and most files do, entry (u, v) stores an arc u -> v, so that v reads from u: a ``Graph`` keeps the
transpose. With ``transpose``, entry (i, j) means that i reads from j, as for ``Graph.from_scipy``. Entries that are
repeated are added, and zeros are dropped. There are neither features nor labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array

from fullgnn.errors import DataError, quoted
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.given_files import existing_file
from fullgnn.graph.datasets.words import WordRows, read_rows
from fullgnn.graph.graph import Graph
from fullgnn.telemetry.machine import check_fits

_BYTES_OF_ENTRY = 32
_NUMBERS = ("real", "integer", "pattern", "double", "unsigned-integer")  # the last two are others' words
_ACCEPTED = (("matrix",), ("coordinate", "array"), _NUMBERS, ("general", "symmetric"))


@dataclass(frozen=True)
class _MatrixHeader:
    is_array: bool
    is_pattern: bool
    is_symmetric: bool
    size: int
    num_entries: int


def files(path: str) -> list[Path]:
    """The one file of ``load``.

    Raises:
        DataError: it is missing.
    """
    return [existing_file(path, "path", "a file in the format Matrix Market")]


def lacks() -> list[str]:
    """Both ``labels`` and ``train_mask``: a matrix has neither."""
    return ["labels", "train_mask"]


def load(name: str | None, path: str, transpose: bool) -> Graph:
    """The graph of the matrix in the file ``path``, plain or, with the suffix .gz, compressed.

    Raises:
        DataError: the file is missing or has wrong contents, or the matrix is not square, complex or skew-symmetric;
            the message names the file.
    """
    (file,) = files(path)
    pieces = iter(read_rows(file))
    header, rest = _header(file, pieces)
    entries = [(np.empty((2, 0), np.int32), np.empty(0))]
    num_entries = 0
    for rows in rest:
        if not len(rows):
            continue
        if num_entries + len(rows) > header.num_entries:
            after = header.num_entries - num_entries
            raise rows.error(after, f"follows the {header.num_entries} entries that the size announces")
        entries.append(_values(rows, header, num_entries) if header.is_array else _entries(rows, header))
        num_entries += len(rows)
        check_fits(_BYTES_OF_ENTRY * num_entries, f"{file}: {num_entries} entries or more", "take a larger machine")
    if num_entries < header.num_entries:
        raise DataError(
            f"{file} announces {header.num_entries} entries and has {num_entries}: correct its size, or write the file"
            " again if it is cut off"
        )
    (row, column), value = (np.concatenate(arrays, axis=-1) for arrays in zip(*entries))
    value = np.ones(num_entries, bool) if header.is_pattern else value
    if header.is_symmetric:
        off = row != column
        row, column = np.concatenate([row, column[off]]), np.concatenate([column, row[off]])
        value = np.concatenate([value, value[off]])
    adj = coo_array((value, (row, column)), shape=(header.size, header.size))
    remarks = {"zero_arcs": 0} if header.is_array else None  # an array has all numbers, and most of a graph are 0
    name = name or file.name.removesuffix(".gz").removesuffix(".mtx")
    return Graph.from_scipy(adj if transpose else adj.T, name=name, remarks=remarks)


def _header(file: Path, pieces: Iterator[WordRows]) -> tuple[_MatrixHeader, Iterator[WordRows]]:
    """What the first lines say, and the rows after them."""
    banner: list[str] = []
    for rows in pieces:
        row = 0
        if not banner:
            banner = [rows.word(word).lower() for word in range(rows.first[1])]
            row = 1
            _check_banner(rows, banner)
        while row < len(rows) and rows.text[rows.start[rows.first[row]]] == ord("%"):  # lines of comments are few
            row += 1
        if row < len(rows):
            return _sized(rows[row : row + 1], banner), chain([rows[row + 1 :]], pieces)
    raise DataError(f"{file} has no size: it is empty or cut off, so write it again")


def _check_banner(rows: WordRows, banner: list[str]) -> None:
    if banner[0] != "%%matrixmarket" or len(banner) != 5:
        raise rows.error(0, "must be like %%MatrixMarket matrix coordinate real general")
    for word, accepted in zip(banner[1:], _ACCEPTED):
        if word not in accepted:
            raise rows.error(0, f"has {quoted(word)!r}, and a graph is read from {' or '.join(accepted)}")
    if banner[2:4] == ["array", "pattern"]:
        raise rows.error(0, "announces an array without numbers")


def _sized(rows: WordRows, banner: list[str]) -> _MatrixHeader:
    """The header with the size, in the one row of ``rows``."""
    is_array, is_symmetric = banner[2] == "array", banner[4] == "symmetric"
    rows.columns(
        {2: "the numbers of rows and columns"} if is_array else {3: "the numbers of rows, columns and entries"}
    )
    size, num_columns, *counts = rows.integers().tolist()
    if size != num_columns or size < 1:
        raise rows.error(0, f"has {size} rows and {num_columns} columns, and the matrix of a graph is square")
    check_num_nodes(size, str(rows.file))
    num_entries = counts[0] if counts else size * (size + 1) // 2 if is_symmetric else size * size
    if num_entries < 0:
        raise rows.error(0, f"announces {num_entries} entries")
    check_fits(16 * size, f"{rows.file}, which announces {size} rows,", "correct its size")
    return _MatrixHeader(is_array, banner[3] == "pattern", is_symmetric, size, num_entries)


def _entries(rows: WordRows, header: _MatrixHeader) -> tuple[np.ndarray, np.ndarray]:
    """Row and column from 0 of the entries of these rows, (2, n) int32, and their numbers."""
    columns = rows.columns({2: "a row and a column"} if header.is_pattern else {3: "a row, a column and a number"})
    place = np.stack([rows.integers(slice(column, None, columns)) for column in (0, 1)])
    wrong = np.flatnonzero(((place < 1) | (place > header.size)).any(axis=0))
    if len(wrong):
        entry = ", ".join(map(str, place[:, wrong[0]].tolist()))
        raise rows.error(int(wrong[0]), f"has the entry ({entry}), and rows and columns are 1 to {header.size}")
    if header.is_symmetric and (place[0] < place[1]).any():
        row = int((place[0] < place[1]).argmax())
        raise rows.error(row, "has an entry above the diagonal, and a symmetric file has those below it")
    values = np.empty(0) if header.is_pattern else rows.floats(slice(2, None, 3))
    return (place - 1).astype(np.int32), values


def _values(rows: WordRows, header: _MatrixHeader, done: int) -> tuple[np.ndarray, np.ndarray]:
    """As ``_entries``, of the numbers of an array, of which ``done`` were in earlier rows."""
    rows.columns({1: "one number"})
    number = np.arange(done, done + len(rows))
    if not header.is_symmetric:
        return np.stack([number % header.size, number // header.size]).astype(np.int32), rows.floats()
    starts = np.cumsum(np.append(0, header.size - np.arange(header.size)))  # of the columns, from the diagonal down
    column = np.searchsorted(starts, number, side="right") - 1
    return np.stack([number - starts[column] + column, column]).astype(np.int32), rows.floats()
