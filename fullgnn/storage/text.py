"""Read JSON and YAML that may come from anywhere: measured before it is read, and plain values alone.

Both give mappings with texts as keys, lists, texts, numbers, true, false and None. A YAML alias, which makes a small
file a huge tree, and nesting beyond ``MAX_DEPTH`` are refused; nothing in a text is replaced by anything.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from fullgnn.errors import DataError, message_of, quoted

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
    for found in _BRACKETS.finditer(text):
        bracket = found[0]
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
