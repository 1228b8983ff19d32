"""Datasets, one per file: ``load`` takes exactly the keys of the dataset's YAML and returns a ``Graph``.

A function ``files`` beside ``load`` returns the files that ``load`` reads. It takes some keys of ``load``, and it reads
and downloads nothing. For a file that is missing, and that ``load`` does not download, it raises the ``DataError`` of
``load``.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError, message_of
from fullgnn.graph.graph import Graph
from fullgnn.storage.cache import Cache
from fullgnn.storage.memory import within_memory

log = logging.getLogger(__name__)


def load_dataset(node: Mapping[str, Any]) -> Graph:
    """Call the ``_target_`` of a ``conf/dataset`` node with the node's other keys.

    Two keys are common to all datasets and handled here: ``symmetrize`` stores every arc in both directions,
    and ``name`` labels the result (where ``name`` is null, the dataset chooses one). Each of the two is also passed
    to a ``load`` that declares it.

    Raises:
        ConfigError, DataError: a key is wrong, or a file is missing, damaged or too large for the memory.
    """
    load, keys = _loader(node)
    name = node.get("name")
    with within_memory(f"the dataset {name or node['_target_']}"):
        graph = load(**keys)
        if node.get("symmetrize", False):
            graph = graph.symmetrized()
    return graph if name is None or name == graph.name else replace(graph, name=name)


def dataset_files(node: Mapping[str, Any]) -> list[Path] | None:
    """The files that ``load_dataset(node)`` reads; empty for a generated graph, None if the loader does not say.

    A file that the loader downloads may be absent.

    Raises:
        ConfigError, DataError: as ``check_dataset``.
    """
    load, keys = _loader(node)
    files: Any = getattr(sys.modules.get(load.__module__), "files", None)
    if getattr(files, "__module__", None) != load.__module__:  # absent, or imported, as importlib.resources.files
        return None
    declared = signature(files).parameters
    if not declared.keys() <= keys.keys():
        return None  # another function of a user's module
    return files(**{key: keys[key] for key in declared})


def check_dataset(node: Mapping[str, Any]) -> None:
    """Refuse, before anything is loaded or downloaded, a dataset whose files are missing.

    Raises:
        ConfigError: a key of the dataset is wrong.
        DataError: a file is missing, and the loader does not download it.
    """
    dataset_files(node)


def load_cached(node: Mapping[str, Any], cache: Cache) -> Graph:
    """Load the dataset of :func:`load_dataset`, whose ``name`` is not null, from ``cache`` or else store it there."""
    key = cache.key(dataset=node)
    stored: Any = cache.load("graph", key)
    try:
        if stored is not None:
            return Graph(**stored, name=node["name"])
    except (DataError, TypeError, ValueError) as error:
        log.warning("the graph %s in %s cannot be used (%s): it is loaded again", key, cache.folder, message_of(error))
    graph = load_dataset(node)
    arrays = {field.name: getattr(graph, field.name) for field in fields(graph) if field.name != "name"}
    cache.store("graph", key, {name: np.asarray(array) for name, array in arrays.items() if array is not None})
    return graph


def _loader(node: Mapping[str, Any]) -> tuple[Callable[..., Graph], dict[str, Any]]:
    """The function that loads the dataset of ``node``, and its arguments."""
    keys = {str(key): value for key, value in node.items()}
    target = keys.pop("_target_", None)
    load = _resolve(target)
    declared = signature(load).parameters
    keys = {key: value for key, value in keys.items() if key in declared or key not in ("name", "symmetrize")}
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
