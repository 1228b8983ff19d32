"""Graphs in the layout of GraphSAINT (Zeng et al., 2020): Flickr, Yelp, AmazonProducts, Reddit, PPI.

A folder has four files:

- ``adj_full.npz``: ``data``, ``indices``, ``indptr`` and ``shape`` of a CSR matrix. An entry [u, v] is an arc u -> v,
  as PyTorch Geometric reads it; the published graphs have both directions. The numbers in ``data`` do not count, as
  there: every arc counts 1;
- ``feats.npy``: (num_nodes, F), which become float32. GraphSAINT itself standardizes them, which is not done here;
- ``role.json``: the ids of the nodes for training, validation and testing, by ``tr``, ``va`` and ``te``;
- ``class_map.json``: by the id of a node, as a text, its class, or a list that says whether it has each of several
  labels. A node that is not there has no label.

``adj_train.npz``, which is beside them, is not read.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.graph.checks import check_num_nodes, first_line, id_beyond, naming, to_float32
from fullgnn.graph.datasets.given_files import in_folder, mapped
from fullgnn.graph.datasets.named_arrays import NamedArrays
from fullgnn.graph.graph import Graph
from fullgnn.graph.labels import check_labels
from fullgnn.graph.masks import masks_of_ids, without_unlabelled
from fullgnn.storage.text import parse_json, read_text
from fullgnn.telemetry.machine import check_fits

COPY_AGAIN = "copy it again from the folder that GraphSAINT publishes"
NAMES = ("adj_full.npz", "feats.npy", "role.json", "class_map.json")
ROLES = {"train": "tr", "valid": "va", "test": "te"}

_PER_BYTE = 12  # bytes of memory, at most, that a byte of JSON takes: for "0," the text, and a place in a list
ROWS_AT_ONCE = 1 << 15


class _SaintArrays(NamedArrays):
    needs = "the layout of GraphSAINT has data, indices, indptr and shape"


def files(path: str) -> list[Path]:
    """The four files of ``load``: adjacency, features, split and labels.

    Raises:
        DataError: a file is missing.
    """
    return in_folder(path, NAMES, f"set dataset.path to a folder of GraphSAINT with {', '.join(NAMES)}")


def load(name: str, path: str) -> Graph:
    """The graph in the folder ``path``. Nodes of the split without a label are in no mask; a remark has their number.

    Raises:
        DataError: a file is missing or damaged; the message names it.
    """
    adj_file, feature_file, role_file, label_file = files(path)
    adj = _SaintArrays(adj_file, COPY_AGAIN).sparse("")
    num_nodes = adj.shape[0]
    check_num_nodes(num_nodes, str(adj_file))
    if adj.shape[1] != num_nodes:
        raise DataError(f"{adj_file} has a matrix of shape {adj.shape}, which is not square: {COPY_AGAIN}")
    adj.data = np.ones(adj.nnz, bool)
    labels = _labels(label_file, num_nodes)
    masks, remarks = without_unlabelled(_masks(role_file, num_nodes), labels)
    with naming(feature_file.parent):
        return Graph.from_scipy(
            adj.T,
            features=_features(feature_file, num_nodes),
            labels=labels,
            name=name,
            remarks=remarks,
            **masks,  # type: ignore[arg-type]
        )


def _features(file: Path, num_nodes: int) -> np.ndarray:
    """(num_nodes, F) float32, mapped if the file has that dtype."""
    features = mapped(file, COPY_AGAIN)
    if features.dtype.kind not in "biuf" or features.ndim != 2 or len(features) != num_nodes:
        raise DataError(
            f"{file} has the dtype {features.dtype} and the shape {features.shape}, and takes numbers, one row for each"
            f" of {num_nodes} nodes: {COPY_AGAIN}"
        )
    check_fits(4 * features.size, str(file), "take a machine with more memory")
    return to_float32(features)


def _masks(file: Path, num_nodes: int) -> dict[str, np.ndarray]:
    role = _json(file)
    missing = [key for key in ROLES.values() if key not in role]
    if missing:
        raise DataError(f"{file} has no {missing[0]!r}: {COPY_AGAIN}")
    given: dict[str, tuple[object, Any]] = {}
    for part, key in ROLES.items():
        given[part] = file, _array(role[key], file, f"the nodes of {key}")
    return masks_of_ids(given, num_nodes, COPY_AGAIN)


def _labels(file: Path, num_nodes: int) -> np.ndarray:
    """Labels in the form that a ``Graph`` keeps: (num_nodes,) int64, or (num_nodes, c) int8."""
    class_map = _json(file)
    try:
        ids = np.fromiter(map(int, class_map), np.int64, len(class_map))
    except (OverflowError, ValueError) as error:
        raise DataError(f"{file} has a key that is no node ({quoted(first_line(error))}): {COPY_AGAIN}") from error
    if (wrong := id_beyond(ids, num_nodes)) is not None or not ids.size:
        bad = "no node" if wrong is None else f"the node {wrong}"
        raise DataError(f"{file} has {bad}, and there are the nodes 0 to {num_nodes - 1}: {COPY_AGAIN}")
    if len(np.unique(ids)) < len(ids):
        raise DataError(f"{file} has a node twice, under two keys: {COPY_AGAIN}")
    labels: np.ndarray | None = None
    first = 0
    for block in _blocks(list(class_map.values()), file):
        if labels is None:
            shape = (num_nodes, *block.shape[1:])
            check_fits(math.prod(shape), f"{file}: labels of shape {shape}", COPY_AGAIN)
            labels = np.full(shape, -1, np.int64 if block.ndim == 1 else np.int8)
        if block.shape[1:] != labels.shape[1:]:
            raise DataError(f"{file} gives nodes different numbers of labels: {COPY_AGAIN}")
        labels[ids[first : first + len(block)]] = block
        first += len(block)
    assert labels is not None
    return labels


def _blocks(values: list[Any], file: Path) -> Iterator[np.ndarray]:
    """The labels of some nodes after the others: (m,) int64 classes, or (m, c) int8 of 0 and 1."""
    for first in range(0, len(values), ROWS_AT_ONCE):
        block = _array(values[first : first + ROWS_AT_ONCE], file, "the labels")
        if block.ndim not in (1, 2) or block.dtype.kind not in "biu":
            raise DataError(f"{file}: the labels are no classes, and no lists of 0 and 1 of one length: {COPY_AGAIN}")
        with naming(file):
            labels, _ = check_labels(block, len(block), 0)
        yield labels


def _array(values: Any, file: Path, what: str) -> np.ndarray:
    """The array of ``values`` of a JSON."""
    try:
        return np.array(values)
    except (TypeError, ValueError) as error:  # lists of different lengths
        raise DataError(f"{file}: {what} are no numbers ({quoted(first_line(error))}): {COPY_AGAIN}") from error


def _json(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file."""
    size = file.stat().st_size
    check_fits(_PER_BYTE * size, str(file), "take a machine with more memory")
    mapping = parse_json(read_text(file, size), file)
    if not isinstance(mapping, dict):
        raise DataError(f"{file} holds no mapping of texts: {COPY_AGAIN}")
    return mapping
