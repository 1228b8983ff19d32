"""The split of a graph, as people hold it: masks of booleans or of 0 and 1, lists of node ids, or columns of masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import to_numpy

MASKS = ("train_mask", "val_mask", "test_mask")


def check_masks(masks: Mapping[str, Any], labelled: np.ndarray | None, num_nodes: int) -> list[np.ndarray]:
    """The split: (num_nodes,) bool masks, disjoint. None gives an empty one.

    Args:
        masks: by name, one of the forms of ``read_mask``.
        labelled: (num_nodes,) bool, the nodes that a mask may contain; None: the graph has no labels.
    """
    checked: dict[str, np.ndarray] = {}
    for name, value in masks.items():
        mask = read_mask(value, name, num_nodes)
        if labelled is not None and (mask & ~labelled).any():
            raise DataError(f"{name} contains unlabelled nodes (label -1 or NaN): take them out of every mask")
        for other, earlier in checked.items():
            if (mask & earlier).any():
                raise DataError(f"{other} and {name} overlap: a node belongs to one part of the split at most")
        checked[name] = mask
    return list(checked.values())


def read_mask(value: Any, name: str, num_nodes: int) -> np.ndarray:
    """(num_nodes,) bool, the nodes of one part of a split.

    Args:
        value: None, no node; (num_nodes,) or (num_nodes, 1) booleans, or numbers that are 0 and 1: a mask; other
            integers, of any number: the ids of the nodes, each once.
        name: of the argument, for the errors.

    Raises:
        DataError: ``value`` is neither a mask nor ids, or it may be both.
    """
    if value is None:
        return np.zeros(num_nodes, bool)
    given = to_numpy(value, name)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim == 2 and len(given) == num_nodes:
        raise DataError(
            f"{name} has shape {given.shape}, a split a column: choose one, as in {name}[:, 0], in"
            " Graph.from_pyg(data, split=0), or for a file in dataset.split=0"
        )
    if given.ndim != 1:
        raise DataError(f"{name} has shape {given.shape} but the graph has {num_nodes} nodes: pass one bool per node")
    is_mask = given.dtype == bool or _are_bits(given)
    if given.dtype.kind not in "iu" and given.size:
        if len(given) != num_nodes:
            raise DataError(
                f"{name} has shape {given.shape} but the graph has {num_nodes} nodes: pass one bool per node"
            )
        if not is_mask:
            raise DataError(f"{name} holds values other than 0 and 1: pass one boolean per node, or integer node ids")
        return given.astype(bool, copy=False)
    mask = np.zeros(num_nodes, bool)
    in_range = not given.size or (0 <= given.min() and given.max() < num_nodes)
    if in_range:
        mask[given.astype(np.int64, copy=False)] = True
    are_ids = in_range and np.count_nonzero(mask) == len(given)
    if len(given) == num_nodes and is_mask:
        if are_ids and given.size:
            raise DataError(
                f"{name} holds {given.tolist()} for {num_nodes} nodes, which may be a mask or node ids: pass booleans"
            )
        return given.astype(bool)
    if not in_range:
        bad = given.min() if given.min() < 0 else given.max()
        raise DataError(f"node id {bad} in {name} is out of range: the graph has nodes 0 to {num_nodes - 1}")
    if not are_ids:
        raise DataError(
            f"{name} holds {len(given)} integers, no mask of the {num_nodes} nodes, and as node ids some of them"
            " repeat: pass one boolean per node, or each id once"
        )
    return mask


def _are_bits(given: np.ndarray) -> bool:
    """Whether all numbers are 0 or 1."""
    if given.dtype.kind in "iu":
        return not given.size or bool(0 <= given.min() and given.max() <= 1)
    return bool(np.isin(given, (0, 1)).all())


def chosen_split(masks: Mapping[str, Any], split: int | str | None, num_nodes: int, cure: str) -> dict[str, Any]:
    """The ``masks`` of a graph of another library, each of one split; see ``column_of_masks``.

    Args:
        split: the number of a column; the name of a method, by which another split is drawn afterwards, so that masks
            of several columns are left out; None: the masks must have one split.

    Raises:
        DataError: as ``column_of_masks``.
    """
    if isinstance(split, str):
        return {name: None if _num_columns(value) > 1 else value for name, value in masks.items()}
    return column_of_masks(masks, split, num_nodes, cure)


def has_columns(masks: Iterable[Any]) -> bool:
    """Whether one of the ``masks``, which may be anything, has a column for each of some splits."""
    return any(_num_columns(mask) for mask in masks)


def _num_columns(mask: Any) -> int:
    """The number of columns of a mask that may be anything; 0: it is no matrix."""
    shape = tuple(getattr(mask, "shape", ()))
    return int(shape[1]) if len(shape) == 2 else 0


def column_of_masks(masks: Mapping[str, Any], split: int | None, num_nodes: int, cure: str) -> dict[str, Any]:
    """The ``masks``, each of one split: of those with a split a column, (num_nodes, s), the column ``split``.

    Args:
        masks: by name; one may be None.
        split: None: the masks must have one split.
        cure: how to choose a split, for the error, as in ``dataset.split=0``.

    Raises:
        DataError: there are several splits and ``split`` is None, there is one, or ``split`` is none of them.
    """
    arrays = {name: None if value is None else to_numpy(value, name) for name, value in masks.items()}
    wide = {name: array for name, array in arrays.items() if array is not None and array.ndim == 2}
    several = {name: array for name, array in wide.items() if array.shape[1] != 1 or split is not None}
    if not several:
        if split is not None:
            have = (
                "the masks have one split" if any(one is not None for one in arrays.values()) else "there are no masks"
            )
            raise DataError(f"split={split} chooses a column of masks, and {have}: leave it out")
        return dict(arrays)
    for name, array in several.items():
        if len(array) != num_nodes:
            turned = ", a split a row: pass the transpose" if array.shape[1] == num_nodes else ""
            raise DataError(
                f"{name} has shape {array.shape} but the graph has {num_nodes} nodes{turned or ': pass a row per node'}"
            )
        num_splits = array.shape[1]
        if split is None:
            raise DataError(f"{name} has {num_splits} columns, a split each: choose one of them, as in {cure}")
        if not 0 <= split < num_splits:
            raise DataError(f"split={split} is out of range: {name} has the splits 0 to {num_splits - 1}")
    return {name: several[name][:, split] if name in several else array for name, array in arrays.items()}
