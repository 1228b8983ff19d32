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
from dataclasses import dataclass, fields, replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import NoneType
from typing import Any, TypeGuard, get_args, get_type_hints

import numpy as np

from fullgnn.errors import ConfigError, DataError, message_of, one_line_errors, quoted
from fullgnn.graph.arrays import graph_from_arrays, graph_to_arrays
from fullgnn.graph.graph import Graph
from fullgnn.graph.splits import METHODS, USED, SplitKeys, check_method, with_split
from fullgnn.storage.arrays import DamagedArray, map_npy
from fullgnn.storage.cache import Cache
from fullgnn.storage.folder import CONTENTS
from fullgnn.telemetry.machine import within_memory

SPLIT_KEYS = ("split", *(field.name for field in fields(SplitKeys)), "split_seed")
"""The keys of ``conf/dataset/base.yaml``: those of a split that all datasets have. A configuration without them has
null for each."""
SPLIT_CURE = "give dataset.split=random, which splits the labelled nodes at random"
"""What a user can do about a graph without a split."""
_COMMON = ("name", "symmetrize", *SPLIT_KEYS)

UNKNOWN = "unknown"
"""``CONTENTS`` of a file whose arrays nobody has hashed."""


@one_line_errors
def load_dataset(node: Mapping[str, Any]) -> Graph:
    """Call the ``_target_`` of a ``conf/dataset`` node with the node's other keys.

    Some keys are common to all datasets and handled here: ``symmetrize`` stores every arc in both directions, ``name``
    labels the result (where ``name`` is null, the dataset chooses one), and those of ``SPLIT_KEYS`` split the
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

    cached = cache.load("graph", key, lambda stored: graph_from_arrays(stored, node["name"]))
    if cached is not None:
        return cached
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


@dataclass(frozen=True)
class Drawn:
    """A split that is drawn, in place of the one of the dataset."""

    method: str
    keys: SplitKeys  # ``groups`` is still a text
    seed: int


def is_drawn(split: Any) -> TypeGuard[str]:
    """Whether the key ``split`` names a method, so that a ``load`` with this key need not read a split."""
    return isinstance(split, str) and split in METHODS


def number_of_split(split: int | str | None) -> int | None:
    """The number of one of the several splits of a dataset; None: none is chosen.

    Raises:
        ConfigError: ``split`` is a text, and names no method.
    """
    if isinstance(split, str):
        check_method(split, SplitKeys(), "dataset.")
    return split if isinstance(split, int) else None


def drawn_split(node: Mapping[str, Any], load: Callable[..., Graph]) -> Drawn | None:
    """The split that a ``conf/dataset`` node asks to be drawn; None: the one that ``load`` chooses or reads.

    A key that ``load`` has itself, and that cannot be null there, is that of its own split as well.

    Raises:
        ConfigError: a key is out of range, or would do nothing.
    """
    split, own = node.get("split"), own_keys(load)
    if "split" in own:  # a key of the user's own with this name
        return None
    keys = SplitKeys(**{field.name: node.get(field.name) for field in fields(SplitKeys)})
    if is_drawn(split):
        keys = replace(keys, **{key: None for key in own if key not in USED[split]})
        seed = node.get("split_seed")
        seed = node.get("seed") or 0 if seed is None else seed
        if not isinstance(seed, int) or seed < 0:
            raise ConfigError(f"dataset.split_seed={seed} is no seed: choose an integer of at least 0")
        check_method(split, keys, "dataset.")
        return Drawn(split, keys, seed)
    declared = signature(load).parameters
    if split is not None and ("split" not in declared or isinstance(split, bool)):
        several = f"a method: {', '.join(METHODS)}"
        number = isinstance(split, int) and not isinstance(split, bool)
        why = "chooses one of several splits, and this dataset has one" if number else "is not known"
        raise ConfigError(f"dataset.split={quoted(split)} {why}: leave it out, or give {several}")
    given = keys.given() | ({} if node.get("split_seed") is None else {"split_seed": node["split_seed"]})
    for name, value in given.items():
        if name not in declared:
            reads = [method for method in METHODS if name in USED[method]] or METHODS
            asks = " or ".join(f"dataset.split={method}" for method in reads)
            raise ConfigError(
                f"dataset.{name}={quoted(value)} would do nothing, since no split is drawn: add {asks}, or leave it out"
            )
    return None


def own_keys(load: Callable[..., Graph]) -> set[str]:
    """The keys of a split that ``load`` has itself and that cannot be null there, as the sizes of its own split."""
    try:
        hints = get_type_hints(load)
    except NameError:  # a name that is known to a type checker alone
        hints = {}
    return {key for key in signature(load).parameters if key in SPLIT_KEYS and NoneType not in get_args(hints.get(key))}


def group_file(groups: Any) -> Path | None:
    """The file that the key ``groups`` names; None: it names a column of the nodes, or is null."""
    return Path(groups).expanduser() if isinstance(groups, str) and groups.endswith(".npy") else None


def read_group_file(file: Path) -> np.ndarray:
    """The groups of all nodes in a .npy file.

    Raises:
        DataError: the file is missing or damaged.
    """
    if not file.is_file():
        raise DataError(f"no file {file.resolve()}: set dataset.groups to an existing .npy file, or to a column")
    try:
        return map_npy(file, read_only=True)
    except (OSError, DamagedArray) as error:
        raise DataError(
            f"{file} cannot be read ({quoted(message_of(error))}): write it with numpy.save, an integer or a text for"
            " each node"
        ) from error


def split_anew(graph: Graph, drawn: Drawn, column: Callable[[], np.ndarray | None]) -> Graph:
    """``graph`` with the split that was ``drawn``.

    Args:
        column: reads the column of the nodes that the key ``groups`` names; None: the dataset has no columns.

    Raises:
        ConfigError, DataError: the graph cannot be split so.
    """
    keys = drawn.keys
    if keys.groups is not None:
        file = group_file(keys.groups)
        groups = column() if file is None else read_group_file(file)
        if groups is None:
            raise ConfigError(
                f"dataset.groups={quoted(keys.groups)} is no .npy file, and the nodes of {graph.name} have no named"
                " columns: write the group of each node with numpy.save, and give that file"
            )
        if file is None and len(groups) < graph.num_nodes:  # nodes that the edges added have no label either
            groups = np.append(groups, np.full(graph.num_nodes - len(groups), -1, groups.dtype))
        keys = replace(keys, groups=groups)
    return with_split(graph, drawn.method, keys, drawn.seed)
