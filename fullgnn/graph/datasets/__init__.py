"""Datasets, one per file: ``load`` takes exactly the keys of the dataset's YAML and returns a ``Graph``.

Beside ``load`` may stand functions that take some of its keys. They download nothing, and load nothing large:

- ``files`` returns the files that ``load`` reads. For a file that is missing, and that ``load`` does not download, it
  raises the ``DataError`` of ``load``;
- ``check`` raises the errors of ``load`` that its keys and the files show at once;
- ``lacks`` returns which of ``labels`` and ``train_mask`` the graph is known to lack;
- ``node_groups`` returns the column of the nodes that the key ``groups`` names, (num_nodes,) integers or texts.

A ``load`` whose files hold several splits takes the key ``split``: the number of one of them, or null. If the key names
a method of ``splits.py``, the labelled nodes are split by it, whatever split ``load`` returns.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from fullgnn.errors import ConfigError, DataError, message_of, one_line_errors, quoted
from fullgnn.graph.arrays import graph_from_arrays, graph_to_arrays
from fullgnn.graph.datasets.common_split import (
    SPLIT_KEYS,
    drawn_split,
    group_file,
    is_drawn,
    read_group_file,
    split_anew,
)
from fullgnn.graph.graph import Graph
from fullgnn.storage.cache import Cache
from fullgnn.storage.folder import CONTENTS
from fullgnn.telemetry.machine import within_memory

_COMMON = ("name", "symmetrize", *SPLIT_KEYS)

UNKNOWN = "unknown"
"""``CONTENTS`` of a file whose arrays nobody has hashed."""


@one_line_errors
def load_dataset(node: Mapping[str, Any]) -> Graph:
    """Call the ``_target_`` of a ``conf/dataset`` node with the node's other keys.

    Some keys are common to all datasets and handled here: ``symmetrize`` stores every arc in both directions, ``name``
    labels the result (where ``name`` is null, the dataset chooses one), and those of ``common_split.py`` split the
    labelled nodes anew. Each of them is also passed to a ``load`` that declares it.

    Raises:
        ConfigError, DataError: a key is wrong, or a file is missing, damaged or too large for the memory.
    """
    load, keys = _loader(node)
    drawn = drawn_split(node, load)
    name = node.get("name")
    with within_memory(f"the dataset {name or node['_target_']}"):
        graph = load(**keys)
        if node.get("symmetrize", False):
            graph = graph.symmetrized()
        if drawn is not None:
            graph = split_anew(graph, drawn, lambda: _beside(node, "node_groups"))
    return graph if name is None or name == graph.name else replace(graph, name=name)


def dataset_files(node: Mapping[str, Any]) -> list[Path] | None:
    """The files that ``load_dataset(node)`` reads; empty for a generated graph, None if the loader does not say.

    A file that the loader downloads may be absent.

    Raises:
        ConfigError, DataError: as ``check_dataset``.
    """
    return _beside(node, "files")


def dataset_identity(node: Mapping[str, Any]) -> dict[str, Any] | None:
    """Plain values that differ if ``load_dataset(node)`` reads something else: the keys, and the path, size,
    modification time and change time of each file. Nobody can set the change time back, as ``touch``, ``cp -p`` and
    ``tar`` do with the modification time.

    None: the loader does not name its files, or is about to download them.

    Raises:
        ConfigError, DataError: as ``check_dataset``.
    """
    contents = contents_of(node.get(CONTENTS), node.get("path"))
    keys = {key: value for key, value in node.items() if value is not None or key not in SPLIT_KEYS}
    groups = group_file(node.get("groups"))
    files = [] if groups is None else [groups]
    if contents is not None and contents != UNKNOWN:
        keys = {key: value for key, value in keys.items() if key != "path"} | {CONTENTS: contents}
    else:
        read = dataset_files(node) if contents is None else None
        if read is None:
            return None
        files = [*read, *files]
    if not all(file.is_file() for file in files):
        return None
    stats = [(str(file.absolute()), file.stat()) for file in files]
    about = [[path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for path, stat in stats]
    return {"dataset": keys, "files": about}


def contents_of(contents: str | None, path: str | None) -> str | None:
    """The SHA-256 of what ``train_graph`` has written to ``path``, or ``UNKNOWN``; None: it is another file, such as
    one that takes the place of the temporary file in a prediction.

    Args:
        contents: the key ``CONTENTS``.
    """
    digest, _, written = (contents or "").partition(" ")
    return digest if digest == UNKNOWN or (written and written == path) else None


def dataset_lacks(node: Mapping[str, Any]) -> list[str]:
    """Which of ``labels`` and ``train_mask`` the graph is known to lack, before it is loaded.

    Raises:
        ConfigError, DataError: as ``check_dataset``.
    """
    lacks = _beside(node, "lacks") or []
    return [name for name in lacks if name != "train_mask" or not is_drawn(node.get("split"))]


def check_dataset(node: Mapping[str, Any]) -> None:
    """Refuse, before anything is loaded or downloaded, a dataset whose files are missing or whose keys are wrong.

    Raises:
        ConfigError: a key of the dataset is wrong.
        DataError: a file is missing, and the loader does not download it.
    """
    drawn_split(node, _loader(node)[0])
    dataset_files(node)
    if (groups := group_file(node.get("groups"))) is not None:
        read_group_file(groups)
    _beside(node, "check")


def load_cached(node: Mapping[str, Any], cache: Cache) -> Graph:
    """Load the dataset of :func:`load_dataset`, whose ``name`` is not null, from ``cache`` or else store it there."""
    identity = dataset_identity(node)
    if identity is None:
        return load_dataset(node)
    key = cache.key(**identity)

    found = cache.load("graph", key, lambda stored: graph_from_arrays(stored, node["name"]))
    if found is not None:
        return found
    graph = load_dataset(node)
    cache.store("graph", key, graph_to_arrays(graph))
    return graph


def _beside(node: Mapping[str, Any], name: str) -> Any:
    """What the function ``name`` beside the ``load`` of ``node`` returns; None if there is no such function."""
    load, keys = _loader(node)
    function: Any = getattr(sys.modules.get(load.__module__), name, None)
    if getattr(function, "__module__", None) != load.__module__:  # absent, or imported, as importlib.resources.files
        return None
    declared = signature(function).parameters
    keys |= {key: node[key] for key in SPLIT_KEYS if key in declared and key in node}  # of which ``load`` may have none
    needed = {name for name, parameter in declared.items() if parameter.default is parameter.empty}
    if not needed <= keys.keys():
        return None  # another function of a user's module
    given = {key: keys[key] for key in declared if key in keys}
    try:
        return function(**given)
    except (OSError, RuntimeError, ValueError) as error:  # a path that no system has
        told = ", ".join(f"dataset.{key}={quoted(value)}" for key, value in given.items())
        raise DataError(f"{told} cannot be used ({quoted(message_of(error))}): give another one") from error


def _loader(node: Mapping[str, Any]) -> tuple[Callable[..., Graph], dict[str, Any]]:
    """The function that loads the dataset of ``node``, and its arguments."""
    keys = {str(key): value for key, value in node.items()}
    target = keys.pop("_target_", None)
    load = _resolve(target)
    declared = signature(load).parameters
    keys = {key: value for key, value in keys.items() if key in declared or key not in _COMMON}
    try:
        signature(load).bind(**keys)
    except TypeError as error:
        raise ConfigError(f"dataset {target}: {error}; its keys are {', '.join(declared)}") from error
    if isinstance(keys.get("seed"), int) and keys["seed"] < 0:
        raise ConfigError(f"dataset.seed={keys['seed']} is negative: choose 0 or above")
    return load, keys


def _resolve(target: Any) -> Callable[..., Graph]:
    """The function that a dotted path names."""
    module, _, function = str(target).rpartition(".")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"dataset _target_ {target!r} cannot be imported ({error}): name it package.module.load"
        ) from error
