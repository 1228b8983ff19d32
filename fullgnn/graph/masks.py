"""The split of a graph, as people hold it: columns of masks with a split each, or the ids of the parts of a published
dataset. ``checks.py`` has the check of masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import id_beyond, to_array, to_numpy
from fullgnn.graph.labels import is_labelled

MASKS = ("train_mask", "val_mask", "test_mask")
MASK_OF_PART = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
"""The mask of a ``Graph`` by the name of a part in published files."""

PART_OF_WORD = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2}
"""The place in ``MASKS`` of each word, in lower case, that names a part of a split in the files of users."""


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
                "the masks have one split"
                if any(mask is not None for mask in arrays.values())
                else "there are no masks"
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


def masks_of_ids(parts: Mapping[str, tuple[object, Any]], num_nodes: int, cure: str) -> dict[str, np.ndarray]:
    """The masks of the ``parts``, by their names in a ``Graph``.

    Args:
        parts: by each name of ``MASK_OF_PART``, the file that has the part, for messages, and the ids of its nodes.
        cure: ends the errors.

    Raises:
        DataError: an id is no node, or is in two parts.
    """
    masks: dict[str, np.ndarray] = {}
    taken = np.zeros(num_nodes, bool)
    for part, (file, given) in parts.items():
        ids = to_array(given, f"{file}: {part}")
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise DataError(f"{file}: the nodes of {part} are no list of integers: {cure}")
        if (bad := id_beyond(ids, num_nodes)) is not None:
            raise DataError(f"{file}: {part} has the node {bad}, and there are the nodes 0 to {num_nodes - 1}: {cure}")
        mask = np.zeros(num_nodes, bool)
        mask[ids.astype(np.int64)] = True
        if (taken & mask).any():
            raise DataError(
                f"{file}: {part} has the node {(taken & mask).argmax()}, which another part has too: {cure}"
            )
        taken |= mask
        masks[MASK_OF_PART[part]] = mask
    return masks


def without_unlabelled(
    masks: Mapping[str, np.ndarray], labels: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The ``masks`` without the nodes of which no label is known, and the remark on these.

    Several publishers hide the labels of test nodes, or list nodes that never had one.
    """
    labelled = is_labelled(labels)
    num_left_out = sum(int(np.count_nonzero(mask & ~labelled)) for mask in masks.values())
    return {name: mask & labelled for name, mask in masks.items()}, {"unlabelled_split_nodes": num_left_out}
