"""Trust in configurations that were read from files: the functions that such a configuration may call.

A node with a ``_target_`` is a call. Calls of the command line, and of the YAML files that it names, are the user's.
A configuration in a checkpoint, or in the folder of a run, may come from anywhere, so

    a call      must be one that a file ``conf/<the same group>/*.yaml`` of this package names, to the letter: the same
                ``_target_`` and ``_partial_`` at the same places of the node, with keys that the file has too
    other calls are taken from the command line alone
    a text      is a text: ``${oc.env:HOME}`` is not replaced by anything

Whatever reads a configuration from a file reads it through ``plain_config`` or ``trusted_node``.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import yaml

from fullgnn.config.compose import OPEN_GROUPS
from fullgnn.config.schema import conf_dir, target_of
from fullgnn.errors import DataError, quoted

KeyPath = tuple[str | int, ...]
"""The keys that lead from a node to one below it; empty: the node itself."""
Calls = dict[KeyPath, tuple[Any, Any]]
"""By place, the ``_target_`` and the ``_partial_`` of each call in a node."""

CALLING = (*OPEN_GROUPS, "reorder")
"""The configuration groups whose nodes call something."""

_TARGET, _PARTIAL = "_target_", "_partial_"
_MAX_DEPTH = 16
_MAX_VALUES = 1 << 16
_MAX_TEXT = 1 << 12
_INTERPOLATION, _AS_TEXT = "${", "$\N{FULLWIDTH LEFT CURLY BRACKET}"


class Choice(NamedTuple):
    """What a YAML file of a configuration group names."""

    calls: Calls
    keys: frozenset[str]


def plain_config(config: Any) -> dict[str, Any]:
    """A copy of a ``config`` that was read from a file: mappings with texts as keys, lists, texts, numbers and None.

    Raises:
        DataError: it holds something else, or too much of it; the message names no file.
    """
    if not isinstance(config, dict):
        raise DataError(f"its configuration is no mapping but {quoted(type(config).__name__)}")
    budget = [_MAX_VALUES]

    def plain(value: Any, depth: int) -> Any:
        budget[0] -= 1
        if depth > _MAX_DEPTH or budget[0] < 0:
            raise DataError("its configuration is nested more deeply, or has more values, than any of a run")
        if isinstance(value, dict) and all(isinstance(key, str) and len(key) < _MAX_TEXT for key in value):
            return {key: plain(below, depth + 1) for key, below in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(below, depth + 1) for below in value]
        if (type(value) is str and len(value) < _MAX_TEXT) or value is None or type(value) in (bool, float):
            return value
        if type(value) is int and -(2**63) <= value < 2**64:
            return value
        what = f"{type(value).__name__} {value if isinstance(value, (int, str)) and _short(value) else ''}"
        raise DataError(f"its configuration holds what no key takes, {quoted(what)}")

    return plain(config, 0)


def _short(value: int | str) -> bool:
    return len(value) < _MAX_TEXT if isinstance(value, str) else abs(value) < 2**256


def calls_of(node: Any) -> Calls:
    """The calls in a node and below it."""
    return dict(_calls(node, ()))


def _calls(node: Any, place: KeyPath) -> Iterator[tuple[KeyPath, tuple[Any, Any]]]:
    if isinstance(node, Mapping):
        if _TARGET in node or _PARTIAL in node:
            yield place, (node.get(_TARGET), node.get(_PARTIAL, False))
        below: Any = node.items()
    else:
        below = enumerate(node) if isinstance(node, list) else ()
    for key, value in below:
        yield from _calls(value, (*place, key))


@functools.cache
def choices_of(group: str) -> tuple[Choice, ...]:
    """What the YAML files of this package in a configuration ``group`` name."""
    nodes = (_content(group, name) for name in _names_of(group))
    return tuple(Choice(calls_of(node), frozenset(node)) for node in nodes)


def _names_of(group: str) -> list[str]:
    """The choices of this package in a configuration ``group``."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


@functools.cache
def _content(group: str, name: str) -> dict[str, Any]:
    content = yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")) or {}
    parents = [parent for parent in content.pop("defaults", []) if parent != "_self_"]
    return {
        key: value
        for settings in (*(_content(group, parent) for parent in parents), content)
        for key, value in settings.items()
    }


def check_calls(group: str, node: Any, where: object, own: Calls | None = None) -> Choice | None:
    """Refuse a ``node`` of a file that would call what no YAML file of this package in its ``group`` calls.

    Args:
        where: the file, for the message.
        own: the calls that the command line names for this group.

    Returns:
        what the file of this package names; None: the calls are the user's ``own``.

    Raises:
        DataError: one line that names the group, what it would call, and the key that allows it.
    """
    calls = calls_of(node)
    if own is not None and calls == own:
        return None
    choices = [choice for choice in choices_of(group) if choice.calls == calls]
    if choices and (calls or group not in CALLING):
        return Choice(calls, frozenset().union(*(choice.keys for choice in choices)))
    known = {call for choice in choices_of(group) for call in choice.calls.items()}
    foreign = [call for call in calls.items() if not _is_in(call, known)] or list(calls.items())
    (place, (target, partial)) = foreign[0] if foreign else ((), (None, False))
    dotted = quoted(".".join(map(str, (group, *place))))
    what = f"{dotted}.{_TARGET}={quoted(target)}" + (f" with {dotted}.{_PARTIAL}={quoted(partial)}" if partial else "")
    name = node.get("name") if isinstance(node, Mapping) else None
    is_own = isinstance(name, str) and name.isidentifier() and len(name) < 64 and name not in _names_of(group)
    choice = name if is_own else "NAME"
    raise DataError(
        f"{where}: it asks for {what}, which no {group} of fullgnn calls, so it is not called: if the {group} is"
        f" your own, give --config-dir=FOLDER {group}={choice}, or {dotted}.{_TARGET}=... itself"
    )


def _is_in(call: Any, known: set[Any]) -> bool:
    try:
        return call in known
    except TypeError:  # a target that is no text
        return False


def trusted_node(group: str, node: Any, where: object, own: Calls | None = None) -> dict[str, Any]:
    """A ``node`` of a file that may be built: its calls and its keys are those of a YAML file of this package.

    Args:
        group: one with calls, or one of keys alone, such as ``optimizations``.
        where: the file, for the message.
        own: the calls that the command line names for this group; the node then may have any keys.

    Raises:
        DataError: see ``check_calls``; or a key is missing, or none of this choice.
    """
    if not isinstance(node, dict):
        raise DataError(f"{where}: its {group} is no mapping but {quoted(node)}: choose another file")
    choice = check_calls(group, node, where, own)
    unknown = sorted(key for key in node if (key not in choice.keys if choice else _is_special(key)))
    if unknown:
        raise DataError(f"{where}: {group}.{quoted(unknown[0])} is no key of its {group}: choose another file")
    if choice and _TARGET in node:
        parameters = inspect.signature(target_of(node)).parameters.values()
        needed = {param.name for param in parameters if param.default is param.empty} & choice.keys
        if missing := sorted(needed - node.keys()):
            raise DataError(f"{where}: it lacks {group}.{missing[0]}: choose another file")
    return node


def _is_special(key: str) -> bool:
    return key == "defaults" or (key.startswith("_") and key not in (_TARGET, _PARTIAL))


def as_text(tree: Any) -> Any:
    """``tree`` with texts in which OmegaConf finds no interpolation; ``restored`` makes them again what they were."""
    if isinstance(tree, dict):
        return {key: as_text(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [as_text(value) for value in tree]
    return tree.replace(_INTERPOLATION, _AS_TEXT) if isinstance(tree, str) else tree


def restored(tree: Any) -> Any:
    """``tree``, of which a part was made by ``as_text``; also of dataclasses, whose fields are written."""
    if is_dataclass(tree) and not isinstance(tree, type):
        for field in fields(tree):
            setattr(tree, field.name, restored(getattr(tree, field.name)))
        return tree
    if isinstance(tree, dict):
        return {key: restored(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [restored(value) for value in tree]
    return tree.replace(_AS_TEXT, _INTERPOLATION) if isinstance(tree, str) else tree
