"""Datasets, one per file: ``load`` takes exactly the keys of the dataset's YAML and returns a ``Graph``."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError
from fullgnn.graph.graph import Graph
from fullgnn.storage.cache import Cache


def load_dataset(node: Mapping[str, Any]) -> Graph:
    """Call the ``_target_`` of a ``conf/dataset`` node with the node's other keys.

    Two keys are common to all datasets and handled here: ``symmetrize`` stores every arc in both directions,
    and ``name`` labels the result (where ``name`` is null, the dataset chooses one). Each of the two is also passed
    to a ``load`` that declares it.
    """
    kwargs = {str(key): value for key, value in node.items()}
    target = kwargs.pop("_target_", None)
    load = _resolve(target)
    name, symmetrize = kwargs.get("name"), kwargs.get("symmetrize", False)
    declared = signature(load).parameters
    kwargs = {key: value for key, value in kwargs.items() if key in declared or key not in ("name", "symmetrize")}
    try:
        signature(load).bind(**kwargs)
    except TypeError as error:
        raise ConfigError(f"dataset {target}: {error}; its keys are {', '.join(declared)}") from error
    if isinstance(kwargs.get("seed"), int) and kwargs["seed"] < 0:
        raise ConfigError(f"dataset.seed={kwargs['seed']} is negative: choose 0 or above")
    graph = load(**kwargs)
    if symmetrize:
        graph = graph.symmetrized()
    return graph if name is None or name == graph.name else replace(graph, name=name)


def load_cached(node: Mapping[str, Any], cache: Cache) -> Graph:
    """Load the dataset of :func:`load_dataset`, whose ``name`` is not null, from ``cache`` or else store it there."""
    key = cache.key(dataset=node)
    stored: Any = cache.load("graph", key)
    if stored is not None:
        return Graph(**stored, name=node["name"])
    graph = load_dataset(node)
    arrays = {field.name: getattr(graph, field.name) for field in fields(graph) if field.name != "name"}
    cache.store("graph", key, {name: np.asarray(array) for name, array in arrays.items() if array is not None})
    return graph


def _resolve(target: Any) -> Callable[..., Graph]:
    """The function that a dotted path names."""
    module, _, function = str(target).rpartition(".")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"dataset _target_ {target!r} cannot be imported ({error}): name it package.module.load"
        ) from error
