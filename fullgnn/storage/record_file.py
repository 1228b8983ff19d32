"""Reading ``record.json``, which may be of an older or a newer version, or damaged."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from fullgnn.errors import DataError, message_of
from fullgnn.storage.text import parse_json, read_text

LARGEST = 2**63
"""No number of a record is as large."""
OTHER_VERSION = "it is damaged, or another version of fullgnn has written it"


def read_fields(file: Path, types: Mapping[str, Any], advice: str) -> dict[str, Any]:
    """The fields of ``record.json`` by their names. A field that must not be null, but is, is left out.

    A number that is not finite becomes null. What lies deeper in a field, such as the costs of a rank, is not checked.

    Args:
        types: the type of each field that this version knows; a field of a newer version may have any value.
        advice: what the message tells the reader to do.

    Raises:
        DataError: the file cannot be read, is no JSON object, or a field has a value of another type.
    """
    try:
        values = finite(parse_json(read_text(file), file))
    except (DataError, ValueError) as error:
        why = message_of(error).removeprefix(f"{file} ")
        raise DataError(f"{file} cannot be read: {advice} ({why})") from error
    if not isinstance(values, dict):
        raise DataError(f"{file} is not of a training run: {advice}")
    for name, value in values.items():
        if value is not None and not fits(value, types.get(name, Any)):
            raise DataError(f"{file}: {name} has a value of another type, so {OTHER_VERSION}: {advice}")
    return {name: value for name, value in values.items() if value is not None or fits(None, types.get(name, Any))}


def fits(value: Any, hint: Any) -> bool:
    """Whether ``value``, as JSON gives it, is of the type ``hint`` of a field. An int may be written as a float, and a
    number in a dictionary or a list may be null: it was not finite."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inside)
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin is dict:
        return isinstance(value, dict) and all(one is None or fits(one, inside[1]) for one in value.values())
    if origin is list:
        return isinstance(value, list) and all(fits(one, inside[0]) for one in value)
    if hint in (int, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, hint)


def finite(node: Any) -> Any:
    """``node`` with null in place of numbers that are not finite.

    Raises:
        ValueError: a whole number is as large as ``LARGEST``.
    """
    if isinstance(node, dict):
        return {name: finite(child) for name, child in node.items()}
    if isinstance(node, list):
        return [finite(child) for child in node]
    if isinstance(node, float) and not math.isfinite(node):
        return None
    if isinstance(node, int) and abs(node) >= LARGEST:
        raise ValueError("a number is beyond all reason")
    return node
