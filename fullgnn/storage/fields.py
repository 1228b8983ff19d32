"""Make a dataclass of values that were read from a file, each of which must have the type that its field says."""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np

from fullgnn.errors import DataError, quoted

T = TypeVar("T")


def of_fields(kind: type[T], values: Any, made: Mapping[str, Any] | None = None) -> T:
    """A ``kind``, which is a dataclass of whole numbers, texts, numbers, tuples, lists and mappings of these, and int64
    arrays. Whole numbers are counts.

    Args:
        values: by the names of its fields; a list stands for a tuple or an array. A field with a default may be absent.
        made: fields that are made already, such as dataclasses; ``values`` has them in another form.

    Raises:
        DataError: a value is absent, of no field, or of another type; one line without the name of the file.
    """
    if not isinstance(values, Mapping):
        raise DataError(f"{kind.__name__} is no mapping but {quoted(type(values).__name__)}")
    made, hints = made or {}, typing.get_type_hints(kind)
    known: Any = fields(kind)  # type: ignore[arg-type]
    needed = {one.name for one in known if one.default is MISSING and one.default_factory is MISSING}
    if odd := sorted(map(quoted, values.keys() - hints.keys())) or sorted(needed - values.keys() - made.keys()):
        raise DataError(f"{kind.__name__} {'has' if odd[0] not in needed else 'lacks'} the field {odd[0]}")
    found = {name: _typed(hints[name], value, name) for name, value in values.items() if name not in made}
    return kind(**found, **made)


def _typed(hint: Any, value: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        (inner,) = [one for one in arguments if one is not types.NoneType]
        return None if value is None else _typed(inner, value, name)
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_typed(arguments[0], one, name) for one in value)
    if origin is list and isinstance(value, list):
        return [_typed(arguments[0], one, name) for one in value]
    if origin is dict and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _typed(arguments[1], one, name) for key, one in value.items()}
    if hint is np.ndarray and isinstance(value, list):
        return _array(value, name)
    if hint is int and type(value) is int and 0 <= value < 2**63:
        return value
    if hint is float and (type(value) is float or (type(value) is int and abs(value) < 2**63)):
        return value
    if hint in (bool, str) and type(value) is hint:
        return value
    raise DataError(f"{name} is {quoted(value) if isinstance(value, (str, float, bool)) else type(value).__name__}")


def _array(value: list[Any], name: str) -> np.ndarray:
    try:
        array = np.array(value)
    except ValueError as error:
        raise DataError(f"{name} has rows of unequal lengths") from error
    if array.dtype != np.int64 and array.size:
        raise DataError(f"{name} holds {array.dtype}, and no counts")
    return array.astype(np.int64)
