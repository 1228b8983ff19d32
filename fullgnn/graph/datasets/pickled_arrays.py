"""NumPy arrays in pickles that ``inert_pickle`` has read: what numpy was to make, as an array of plain numbers."""

import math
from typing import Any

import numpy as np

from fullgnn.errors import quoted
from fullgnn.graph.datasets.inert_pickle import Global, Made

NAMES = (("numpy", "dtype"), ("numpy", "ndarray"), ("numpy.core.multiarray", "_reconstruct"))
"""The names in the pickle of an array."""

NAMES_OF_BYTES = (("_codecs", "encode"), ("__builtin__", "bytes"))
"""The names by which Python 3 writes bytes in protocol 2, which has none."""

RENAMED = {"builtins": "__builtin__", "numpy._core.multiarray": "numpy.core.multiarray"}
"""The older name of a module, by the one that Python 3 and later libraries write."""

_KINDS = {Global: "a class", Made: "an object"}
_DTYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")


def array_of(value: Any) -> np.ndarray:
    """The array that numpy was to make of its shape, dtype and bytes: a view of the bytes.

    Raises:
        ValueError: ``value`` is something else, or its parts do not agree.
    """
    state = value.state if name_of(value) == "_reconstruct" else None
    if not (isinstance(state, tuple) and len(state) == 5):
        raise ValueError(f"it holds {kind_of(value)} where an ndarray belongs")
    _, shape, dtype, fortran_order, content = state
    shape, dtype, content = shape_of(shape), _dtype(dtype), _bytes_of(content)
    if math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"an array of shape {str(shape)[:60]} and dtype {dtype} has {len(content)} bytes")
    flat = np.frombuffer(content, dtype) if content else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran_order else "C").astype(dtype.newbyteorder("="), copy=False)


def integer_of(value: Any) -> int:
    """The integer that numpy was to make of its dtype and bytes.

    Raises:
        ValueError: ``value`` is something else.
    """
    if name_of(value) != "scalar" or len(value.args) != 2:
        raise ValueError(f"it holds {kind_of(value)} where a number belongs")
    dtype, content = _dtype(value.args[0]), _bytes_of(value.args[1])
    if dtype.kind not in "iu" or len(content) != dtype.itemsize:
        raise ValueError(f"it holds a number of dtype {dtype} in {len(content)} bytes, and takes integers")
    return int(np.frombuffer(content, dtype)[0])


def shape_of(value: Any) -> tuple[int, ...]:
    """``value``, if it is the shape of a vector or a matrix.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(value, tuple) or len(value) > 2 or any(type(size) is not int or size < 0 for size in value):
        raise ValueError("a shape is none")
    return value


def text_of(value: Any) -> str:
    """The text ``value``, which Python 2 wrote as bytes.

    Raises:
        ValueError: it is no text.
    """
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise ValueError("a text is none")
    return value


def name_of(value: Any) -> str:
    """The name of the class or function that was to make ``value``; empty if it is plain."""
    return value.maker.name if isinstance(value, Made) else ""


def kind_of(value: Any) -> str:
    """What ``value`` is, for messages."""
    return name_of(value) or _KINDS.get(type(value)) or type(value).__name__


def _bytes_of(value: Any) -> bytes:
    """The bytes ``value``, which protocol 2 may have as a text of Latin-1 that is to be encoded."""
    if name_of(value) == "encode" and len(value.args) == 2 and isinstance(value.args[0], str):
        return value.args[0].encode("latin1")
    if name_of(value) == "bytes" and not value.args:
        return b""
    if not isinstance(value, bytes):
        raise ValueError("an array has no bytes")
    return value


def _dtype(value: Any) -> np.dtype:
    """The dtype of plain numbers that numpy was to make of its text, such as ``f4``, and its byte order."""
    state: Any = value.state if name_of(value) == "dtype" else None
    plain = isinstance(state, tuple) and 5 <= len(state) <= 9 and state[2:5] == (None, None, None)
    if not (plain and value.args):
        raise ValueError("an array has no dtype of plain numbers")
    text, order = text_of(value.args[0]), text_of(state[1])
    if text not in _DTYPES or order not in ("<", ">", "|", "="):
        raise ValueError(f"an array has dtype {quoted(order + text)}, and takes numbers and booleans")
    return np.dtype(order + text)
