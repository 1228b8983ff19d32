"""Helpers that the tests of damaged dataset files share."""

import ast
import os
import re
import struct
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from fullgnn.distributed.worker import Worker, receive
from fullgnn.errors import FullGNNError
from fullgnn.graph import Graph
from tests import damage
from tests.commands import forked_worker
from tests.damage import Check, assert_refused_or_right, is_right

# The child that reads a damaged file has little memory, all of which Arrow's own pool would reserve.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

Files = dict[str, bytes]
Expected = dict[str, Any]


def assert_survives_damage(check: Check, name: str, folder: Path, files: Files, every_case: bool) -> None:
    """``check(name, folder, files, file, seed)`` reads the ``files`` of a format: right, where ``file`` is None, and
    right or refused where ``file`` is damaged, for many seeds. Ten are read one after the other in one child, since a
    fork takes longer than a file; where one is wrong, each of the ten has a child of its own, which names it."""
    whole, names = (name, folder, files, None, 0), list(files)
    check(*whole)
    seeds = range(100) if every_case else range(7, 17)
    cases = [(name, folder, files, names[seed // 3 % len(names)], seed) for seed in seeds]
    groups = [cases[first : first + 10] for first in range(0, len(cases), 10)]
    reader = _reader()
    reader.send((_read_each, [(check, group) for group in groups], (check, [whole])))
    answers = list(reader.receive())
    for group, answer in zip(groups, answers, strict=True):
        if not is_right(answer):
            assert_refused_or_right(check, group, whole)
            raise AssertionError(f"wrong only after another file has been read:\n{answer}")
    assert any(answer.startswith("refused: ") for answer in answers)


@cache
def _reader() -> Worker:
    """One process for all formats, which imports what they need once; it ends with this one."""
    return forked_worker(_serve)


def _serve(connection: Connection) -> None:
    while True:
        damage.send_outcomes(connection, *receive(connection))


def _read_each(check: Check, cases: list[tuple[Any, ...]]) -> None:
    """Raises the last of the errors that refuse a case."""
    refusal: FullGNNError | None = None
    for case in cases:
        try:
            check(*case)
        except FullGNNError as error:
            assert is_right(f"refused: {error}"), case[-2:]
            refusal = error
    if refusal is not None:
        raise refusal


def compare(graph: Graph, expected: Expected) -> None:
    """``expected`` has ``arcs``, the weight by (source, target), and fields of the graph."""
    rows, columns = graph.adjacency().nonzero()
    weight = np.ones(graph.num_edges) if graph.weight is None else graph.weight
    stored = {(int(u), int(v)): float(w) for v, u, w in zip(rows, columns, weight)}
    arcs = {arc: value for arc, value in expected.pop("arcs").items() if value}
    assert stored.keys() == arcs.keys()
    assert all(np.isclose(stored[arc], arcs[arc], rtol=1e-6) for arc in stored)
    for name, value in expected.items():
        given = getattr(graph, name)
        given = given.toarray() if issparse(given) else given
        if isinstance(given, np.ndarray):
            value = np.asarray(value, dtype=given.dtype).reshape(given.shape)
            np.testing.assert_array_equal(given, value, err_msg=name)
        else:
            assert given == value, name


def npy_values(data: bytes) -> tuple[tuple[int, ...], str, list[Any]]:
    """The shape, the kind of the dtype, and the values in C order of a .npy."""
    assert data[:6] == b"\x93NUMPY"
    width = 2 if data[6] == 1 else 4
    length = int.from_bytes(data[8 : 8 + width], "little")
    about = ast.literal_eval(data[8 + width : 8 + width + length].decode("latin1"))
    order, code, size = re.fullmatch(r"([<>|=]?)([a-zA-Z])(\d+)", about["descr"]).groups()
    values, shape, size = data[8 + width + length :], about["shape"], int(size)
    count = int(np.prod([int(n) for n in shape], dtype=object)) if shape else 1
    size = 4 * size if code == "U" else size
    assert len(values) == count * size
    forms = {("b", 1): "?", ("i", 1): "b", ("i", 2): "h", ("i", 4): "i", ("i", 8): "q", ("f", 2): "e"}
    forms |= {("u", 1): "B", ("u", 2): "H", ("u", 4): "I", ("u", 8): "Q", ("f", 4): "f", ("f", 8): "d"}
    if code == "U":
        items = [values[place : place + size].decode("utf-32-le").rstrip("\0") for place in range(0, len(values), size)]
    else:
        items = list(struct.unpack((">" if order == ">" else "<") + str(count) + forms[code, size], values))
    if about["fortran_order"] and len(shape) == 2:
        rows, columns = shape
        items = [items[column * rows + row] for row in range(rows) for column in range(columns)]
    return shape, code, items


def text_lines(content: bytes) -> list[str]:
    return re.split("\r\n|\n|\r", content.decode("latin1"))
