"""The split of a published dataset: the ids of its parts as masks."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import to_array

MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
"""The mask of a ``Graph`` by the name of a part."""


def masks_of_ids(parts: Mapping[str, tuple[object, Any]], num_nodes: int, cure: str) -> dict[str, np.ndarray]:
    """The masks of the ``parts``, by their names in a ``Graph``.

    Args:
        parts: by each name of ``MASKS``, the file that has the part, for messages, and the ids of its nodes.
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
        if ids.size and (ids.min() < 0 or ids.max() >= num_nodes):
            bad = ids.min() if ids.min() < 0 else ids.max()
            raise DataError(f"{file}: {part} has the node {bad}, and there are the nodes 0 to {num_nodes - 1}: {cure}")
        mask = np.zeros(num_nodes, bool)
        mask[ids.astype(np.int64)] = True
        if (taken & mask).any():
            raise DataError(
                f"{file}: {part} has the node {(taken & mask).argmax()}, which another part has too: {cure}"
            )
        taken |= mask
        masks[MASKS[part]] = mask
    return masks


def without_unlabelled(masks: Mapping[str, np.ndarray], labelled: np.ndarray) -> tuple[dict[str, np.ndarray], int]:
    """The ``masks`` without the nodes that are not ``labelled``, (num_nodes,) bool, and how many these were.

    Several publishers hide the labels of test nodes, or list nodes that never had one.
    """
    num_left_out = sum(int(np.count_nonzero(mask & ~labelled)) for mask in masks.values())
    return {name: mask & labelled for name, mask in masks.items()}, num_left_out
