"""Read JSON and YAML that may come from anywhere: measured before it is read, plain values alone, and of the types that
their reader expects.

Both give mappings with texts as keys, lists, texts, numbers, true, false and None. A YAML alias, which makes a small
file a huge tree, and nesting beyond ``MAX_DEPTH`` are refused; nothing in a text is replaced by anything. ``of_fields``
makes a dataclass of such values.
"""

import json
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from fullgnn.errors import DataError, message_of, quoted

T = TypeVar("T")

MAX_BYTES = 1 << 28
"""Size of a file that is read as a whole."""
MAX_DEPTH = 64


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """The text of a file in UTF-8.

    Raises:
        DataError: it cannot be read, is no text, or is larger than ``max_bytes``.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise DataError(f"{path} has more than {max_bytes} bytes, and no such file has as many: remove it")
        return content.decode("utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or quoted(error)})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8 (byte {error.start})") from error


def parse_json(text: str, where: object) -> Any:
    """The values in a JSON ``text``.

    Raises:
        DataError: it is no JSON, or is nested too deeply.
    """
    if _depth_of_json(text) > MAX_DEPTH:
        raise DataError(f"{where} is nested more than {MAX_DEPTH} levels deep")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is no JSON ({quoted(message_of(error))})") from error


_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def _depth_of_json(text: str) -> int:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        bracket = match[0]
        if bracket[0] != '"':
            depth += 1 if bracket in "[{" else -1
            deepest = max(deepest, depth)
            if deepest > MAX_DEPTH:
                break
    return deepest


class _Loader(yaml.SafeLoader):
    """PyYAML's loader of plain values, with the floats of YAML 1.2, such as 1e-8, and without aliases."""

    def __init__(self, stream: Any):
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"it holds the alias *{self.peek_event().anchor}: write the values out")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested more than {MAX_DEPTH} levels deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:timestamp",)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


def parse_yaml(text: str, where: object) -> Any:
    """The values in a YAML ``text``, in which an interpolation such as ``${seed}`` is a text.

    Raises:
        DataError: it is no YAML, has an alias, or is nested too deeply.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError, LookupError, RecursionError) as error:
        raise DataError(f"{where} cannot be read as YAML ({quoted(message_of(error))})") from error


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
    needed = {field.name for field in known if field.default is MISSING and field.default_factory is MISSING}
    if odd := sorted(map(quoted, values.keys() - hints.keys())) or sorted(needed - values.keys() - made.keys()):
        raise DataError(f"{kind.__name__} {'has' if odd[0] not in needed else 'lacks'} the field {odd[0]}")
    typed = {name: _typed(hints[name], value, name) for name, value in values.items() if name not in made}
    return kind(**typed, **made)


def _typed(hint: Any, value: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        (inner,) = [argument for argument in arguments if argument is not types.NoneType]
        return None if value is None else _typed(inner, value, name)
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_typed(arguments[0], element, name) for element in value)
    if origin is list and isinstance(value, list):
        return [_typed(arguments[0], element, name) for element in value]
    if origin is dict and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _typed(arguments[1], element, name) for key, element in value.items()}
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


def fits(value: Any, hint: Any) -> bool:
    """Whether ``value``, as JSON gives it, is of the type ``hint`` of a field. An int may be written as a float, and a
    number in a dictionary or a list may be null: it was not finite."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, inner) for inner in inside)
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin is dict:
        return isinstance(value, dict) and all(below is None or fits(below, inside[1]) for below in value.values())
    if origin is list:
        return isinstance(value, list) and all(fits(element, inside[0]) for element in value)
    if hint in (int, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, hint)


def finite(node: Any, bound: float = math.inf) -> Any:
    """``node`` with null in place of numbers that are not finite, and lists in place of tuples.

    Raises:
        ValueError: a whole number is as large as ``bound``.
    """
    if isinstance(node, dict):
        return {name: finite(child, bound) for name, child in node.items()}
    if isinstance(node, (list, tuple)):
        return [finite(child, bound) for child in node]
    if isinstance(node, float) and not math.isfinite(node):
        return None
    if isinstance(node, int) and abs(node) >= bound:
        raise ValueError("a number is beyond all reason")
    return node
