"""The keys of a split that all datasets have: which of them were given, and the split that they ask for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from inspect import signature
from pathlib import Path
from types import NoneType
from typing import Any, TypeGuard, get_args, get_type_hints

import numpy as np

from fullgnn.errors import ConfigError, DataError, message_of, quoted
from fullgnn.graph.graph import Graph
from fullgnn.graph.splits import METHODS, USED, SplitKeys, check_method, with_split
from fullgnn.storage.arrays import DamagedArray, map_npy

SPLIT_KEYS = ("split", *(one.name for one in fields(SplitKeys)), "split_seed")
"""The keys of ``conf/dataset/base.yaml``. A configuration without them has null for each."""
CURE = "give dataset.split=random, which splits the labelled nodes at random"
"""What a user can do about a graph without a split."""


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
    keys = SplitKeys(**{one.name: node.get(one.name) for one in fields(SplitKeys)})
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
