"""Names of nodes: the ids that the owner of a graph knows its nodes by, which are integers or texts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import first_line, read_only, to_array

_TEXTS_AT_ONCE = 1 << 16  # that are made from, or turned into, Python objects or 64-bit positions at once


@dataclass(frozen=True, eq=False)
class Texts:
    """A list of texts in two arrays, as Arrow keeps them: a long text makes no other one longer.

    An index of integers gives the texts at these places, a slice those in between.
    """

    ends: np.ndarray
    """(num_texts + 1,) int64: text i is the bytes from ``ends[i]`` up to ``ends[i + 1]``."""
    utf8: np.ndarray
    """(num_bytes,) uint8, the bytes of all texts, one after the other."""

    def __post_init__(self) -> None:
        ends, utf8 = np.asarray(self.ends), np.asarray(self.utf8)
        if ends.dtype != np.int64 or ends.ndim != 1 or not len(ends) or utf8.dtype != np.uint8 or utf8.ndim != 1:
            raise DataError("a list of texts has int64 ends, from 0, and uint8 bytes")
        if ends[0] != 0 or ends[-1] != len(utf8) or (ends[1:] < ends[:-1]).any():
            raise DataError("the ends of a list of texts must rise from 0 to the number of bytes")
        object.__setattr__(self, "ends", read_only(ends))
        object.__setattr__(self, "utf8", read_only(utf8))

    @classmethod
    def of(cls, values: Any) -> Texts:
        """The texts in a list of strings, or in a NumPy array of them."""
        pieces, sizes = [], [np.zeros(1, np.int64)]
        for first in range(0, len(values), _TEXTS_AT_ONCE):
            encoded = [str(value).encode() for value in values[first : first + _TEXTS_AT_ONCE]]
            pieces.append(np.frombuffer(b"".join(encoded), np.uint8))
            sizes.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        return cls(np.cumsum(np.concatenate(sizes)), np.concatenate([np.empty(0, np.uint8), *pieces]))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, index: np.ndarray | slice) -> Texts:
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        sizes = self.ends[index + 1] - self.ends[index]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        utf8 = np.empty(int(ends[-1]), np.uint8)
        for first in range(0, len(index), _TEXTS_AT_ONCE):
            part = slice(first, first + _TEXTS_AT_ONCE)
            begin, stop = int(ends[first]), int(ends[min(first + _TEXTS_AT_ONCE, len(index))])
            shift = self.ends[index[part]] - ends[first : first + len(sizes[part])]
            utf8[begin:stop] = self.utf8[np.arange(begin, stop) + np.repeat(shift, sizes[part])]
        return Texts(ends, utf8)

    def to_arrow(self) -> Any:
        """The texts as a pyarrow large_string, which shares their memory."""
        import pyarrow

        buffers = pyarrow.py_buffer(self.ends), pyarrow.py_buffer(self.utf8)
        return pyarrow.LargeStringArray.from_buffers(len(self), *buffers)

    def tolist(self) -> list[str]:
        """The texts as Python strings."""
        data, ends = self.utf8.tobytes(), self.ends.tolist()
        return [data[begin:end].decode(errors="replace") for begin, end in itertools.pairwise(ends)]


NodeNames = np.ndarray | Texts
"""The names of nodes, (num_nodes,): int64, or texts."""


def check_node_names(value: Any, num_nodes: int) -> NodeNames | None:
    """Names as a ``Graph`` keeps them: None, (num_nodes,) int64, or ``Texts``.

    Args:
        value: integers, strings, or ``Texts``; bytes are refused, since nobody knows their encoding.

    Raises:
        DataError: it is none of these, or there is not one for each node.
    """
    if value is None:
        return None
    if not isinstance(value, Texts):
        value = _named(value)
    if len(value) != num_nodes:
        raise DataError(
            f"node_names has {len(value)} names but the graph has {num_nodes} nodes: pass one name per node"
        )
    return value if isinstance(value, Texts) else read_only(value)


def names_of(nodes: list[Any]) -> list[Any] | None:
    """The nodes of another library as names; None if they are numbered from 0, or are not integers and strings."""
    if nodes == list(range(len(nodes))) or not all(map(_is_name, nodes)):
        return None
    return nodes


def as_node_names(names: NodeNames) -> NodeNames | None:
    """The ``names`` of a graph; None, if they are 0, 1, 2, ..., which the nodes have without names."""
    if isinstance(names, np.ndarray) and np.array_equal(names, np.arange(len(names))):
        return None
    return names


def check_class_names(value: Any, num_classes: int) -> tuple[str, ...]:
    """The names of the classes as a ``Graph`` keeps them: one text for each.

    Raises:
        DataError: there is not one for each class.
    """
    names = tuple(map(str, value.tolist() if isinstance(value, np.ndarray) else value))
    if len(names) != num_classes:
        raise DataError(f"class_names has {len(names)} names but the labels have {num_classes} classes: pass one each")
    return names


def names_to_arrays(names: NodeNames | None, prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays of a file that ``names_from_arrays`` reads."""
    if names is None:
        return {}
    if isinstance(names, Texts):
        return {f"{prefix}node_names_ends": names.ends, f"{prefix}node_names_utf8": names.utf8}
    return {f"{prefix}node_names": names}


def names_from_arrays(arrays: Any, prefix: str = "") -> Any:
    """The names in ``arrays``, of which ``names_to_arrays`` has made some; None: there are none.

    Raises:
        DataError: they are no names.
    """
    if f"{prefix}node_names_ends" in arrays and f"{prefix}node_names_utf8" in arrays:
        return Texts(arrays[f"{prefix}node_names_ends"], arrays[f"{prefix}node_names_utf8"])
    return arrays[f"{prefix}node_names"] if f"{prefix}node_names" in arrays else None


def _named(value: Any) -> NodeNames:
    """Integers or texts of any array-like."""
    array = to_array(value, "node_names")
    if array.ndim != 1:
        raise DataError(f"node_names has shape {array.shape}: pass one name per node")
    if array.dtype.kind == "i" or (array.dtype.kind == "u" and int(array.max(initial=0)) < 1 << 63):
        return array.astype(np.int64, copy=False)
    if array.dtype.kind in "UTu" or (array.dtype == object and all(map(_is_name, array))):
        try:
            return Texts.of(array.astype(str) if array.dtype.kind == "u" else array)
        except UnicodeError as error:
            raise DataError(f"node_names holds a text that is not valid Unicode: {first_line(error)}") from error
    raise DataError(f"node_names has dtype {array.dtype}: pass integers or strings")


def _is_name(value: Any) -> bool:
    return isinstance(value, (str, int, np.integer)) and not isinstance(value, bool)
