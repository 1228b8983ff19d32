"""Datasets, one per file: ``load`` takes exactly the keys of the dataset's YAML and returns a ``Graph``."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from typing import Any

from fullgnn.errors import ConfigError
from fullgnn.graph.graph import Graph


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


def _resolve(target: Any) -> Callable[..., Graph]:
    """The function that a dotted path names."""
    module, _, function = str(target).rpartition(".")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"dataset _target_ {target!r} cannot be imported ({error}): name it package.module.load"
        ) from error
