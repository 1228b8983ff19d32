"""Web pages, developers and users of MUSAE, in the files of their publishers.

Data: Rozemberczki, Allen, Sarkar, "Multi-scale attributed node embedding" (2021), github.com/benedekrozemberczki/MUSAE,
and later data of the same authors. A folder has three files, whose names begin with ``musae_<name>`` or ``<name>``:

- ``..._edges.csv``: two ids a row, under a header: each edge once;
- ``..._target.csv``: a row for each node, under a header: its id in the column ``id`` (of Twitch ``new_id``), and other
  columns, one of which is the label; names in quotes may have commas;
- ``..._features.json`` (of Twitch without ``_features``): ``{"node": [feature, ...], ...}``, the features of a
  node.

A folder with ``<name>.npz`` instead, the form in which PyTorch Geometric loads these data, has arrays ``edges``
(E, 2), in both directions, ``features`` (num_nodes, F) and ``target`` (num_nodes,). There is no split.
"""

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from fullgnn.errors import ConfigError, DataError, quoted
from fullgnn.graph.checks import first_line, naming, reading
from fullgnn.graph.datasets.named import as_integers, class_fields, first_repeated, node_names_of, places_of
from fullgnn.graph.graph import Graph
from fullgnn.graph.node_data import normalize_rows
from fullgnn.storage.archive import Archive
from fullgnn.storage.arrays import DamagedArray
from fullgnn.telemetry.machine import check_fits

_LABELS = ("page_type", "ml_target", "target")
"""Columns of labels in published files."""
_PER_BYTE = 32  # bytes of memory, at most, that a byte of JSON takes
_PER_BYTE_OF_CSV = 16
_MAX_FEATURES = 1 << 27
_MAX_CLASSES = 100  # of a graph of any size


def files(name: str, path: str) -> list[Path]:
    """The files of ``load``: edges, targets and features, or the one npz.

    Raises:
        DataError: a file is missing.
    """
    folder = Path(path).expanduser()
    packed = folder / f"{name}.npz"
    if packed.is_file():
        return [packed]
    paths = []
    for endings in (("_edges.csv",), ("_target.csv",), ("_features.json", ".json")):
        names = [f"{stem}{ending}" for stem in (f"musae_{name}", name) for ending in endings]
        file = next((folder / candidate for candidate in names if (folder / candidate).is_file()), None)
        if file is None:
            raise DataError(
                f"no file {folder.resolve() / names[0]}: set dataset.path to a folder of MUSAE, and dataset.name to the"
                " word in the names of its files, such as facebook"
            )
        paths.append(file)
    return paths


def check(name: str, path: str, label: str | None, values: bool) -> None:
    """Refuse keys that the file in npz has no use for."""
    if len(files(name, path)) == 1 and label is not None:
        raise ConfigError(
            f"dataset.label={label} would do nothing, since {name}.npz has one array of labels: leave it out"
        )


def lacks() -> list[str]:
    """``train_mask``: the data have no split."""
    return ["train_mask"]


def load(name: str, path: str, label: str | None, values: bool, normalize_features: bool) -> Graph:
    """The graph ``name`` in the folder ``path``.

    Nodes whose ids are integers are numbered by them, others as in the file of targets. Features are sparse, 1 for
    each feature that a node has. Nodes that the file of features lacks have zeros; a remark has their number.
    Edges are stored as published: set ``symmetrize`` for the undirected graph.

    Args:
        label: the column of the labels; None: ``page_type``, ``ml_target`` or ``target``, if the file has one of them.
        values: whether the labels are numbers for ``task=node_regression``; False: classes, by name.

    Raises:
        ConfigError: ``label`` is needed, or does nothing.
        DataError: a file is missing or has wrong contents; the message names it.
    """
    check(name, path, label, values)
    paths = files(name, path)
    if len(paths) == 1:
        fields = _packed(paths[0], values)
    else:
        edges_file, target_file, features_file = paths
        ids, given = _targets(target_file, label)
        features, remarks = _features(features_file, ids)
        fields = {"edge_index": _edges(edges_file, ids), "features": features, "remarks": remarks}
        fields |= {"node_names": node_names_of(ids)} | _labels(target_file, given, values)
    if normalize_features:
        fields["features"] = normalize_rows(fields["features"].astype(np.float32))
    with naming(paths[0]):
        return Graph.from_edge_index(fields.pop("edge_index"), name=name, **fields)


def _targets(file: Path, label: str | None) -> tuple[Any, Any]:
    """The ids of the nodes in the order of the ``Graph``, and their labels, as texts."""
    import pyarrow

    table = _read_texts(file)
    if label is None:
        known = [name for name in _LABELS if name in table]
        if len(known) != 1:
            raise ConfigError(
                f"which column of {file} is the label? Set dataset.label to one of {quoted(', '.join(table))}"
            )
        label = known[0]
    ids = table["new_id"] if "new_id" in table else _column_of(table, "id", file)
    labels = _column_of(table, label, file, "label")
    again = first_repeated(ids)
    if again is not None:
        raise DataError(
            f"{file} has the id {quoted(ids[again])!r} twice, in row {again + 1}: write a row for each node"
        )
    numbers = as_integers(ids)
    if numbers is None:
        return ids, labels
    order = pyarrow.array(np.argsort(numbers))
    return ids.take(order), labels.take(order)


def _labels(file: Path, given: Any, values: bool) -> dict[str, Any]:
    """The labels and, if they have names, the names of the classes, as arguments of a ``Graph``. An empty cell is an
    unknown label."""
    import pyarrow.compute

    given = pyarrow.compute.if_else(pyarrow.compute.equal(given, ""), None, given)
    if values:
        try:
            return {"labels": given.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)}
        except pyarrow.ArrowInvalid as error:
            raise DataError(
                f"{file} has a label that is no number ({quoted(first_line(error))}): correct it, or set"
                " dataset.values=false"
            ) from error
    fields = class_fields(given)
    num_classes = int(fields["labels"].max(initial=-1)) + 1
    if num_classes > max(_MAX_CLASSES, len(given) // 2):
        raise ConfigError(
            f"{file} has {num_classes} different labels of {len(given)} nodes: set dataset.values=true for numbers to"
            " predict, or dataset.label to another column"
        )
    return fields


def _edges(file: Path, ids: Any) -> np.ndarray:
    """(2, E) int32, by the places of the ``ids``."""
    table = _read_texts(file)
    if len(table) != 2:
        raise DataError(f"{file} has the columns {quoted(', '.join(table))}: it must have two, the ids of an edge")
    edges = np.stack([places_of(column, ids) for column in table.values()])
    odd = np.flatnonzero((edges < 0).any(axis=0))
    if len(odd):
        names = " and ".join(quoted(column[int(odd[0])]) for column in table.values())
        raise DataError(
            f"{file} joins {names} in row {odd[0] + 1}, and one of them is not in the file of targets: correct it"
        )
    return edges


def _features(file: Path, ids: Any) -> tuple[csr_array, dict[str, int]]:
    """(num_nodes, F) bool, and the remarks."""
    import pyarrow

    cure = 'write {"node": [feature, ...], ...} with features from 0'
    check_fits(_PER_BYTE * file.stat().st_size, str(file), "take a machine with more memory")
    with reading(file, cure, OSError, RecursionError, ValueError):
        lists = json.loads(file.read_bytes(), object_pairs_hook=_once)
    if not isinstance(lists, dict) or set(map(type, lists.values())) - {list}:
        raise DataError(f"{file} holds no list for each node: {cure}")
    counts = np.fromiter(map(len, lists.values()), np.int64, len(lists))
    flat = list(chain.from_iterable(lists.values()))
    if set(map(type, flat)) - {int} or (flat and not 0 <= min(flat) <= max(flat) < _MAX_FEATURES):
        raise DataError(f"{file} holds other things than numbers of features below {_MAX_FEATURES}: {cure}")
    column = np.array(flat, np.int64)
    row = places_of(pyarrow.array(list(lists), pyarrow.large_string()), ids)
    if (row < 0).any():
        odd = quoted(list(lists)[int((row < 0).argmax())])
        raise DataError(f"{file} has features of {odd!r}, which is not in the file of targets: correct it")
    entries = np.ones(len(column), bool), (np.repeat(row, counts), column)
    features = coo_array(entries, shape=(len(ids), int(column.max(initial=-1)) + 1))
    return features.tocsr(), {"featureless_nodes": len(ids) - len(lists)}


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary of the pairs, whose keys differ."""
    pairs = list(pairs)
    by_node = dict(pairs)
    if len(by_node) < len(pairs):
        raise ValueError("a node is listed twice")
    return by_node


def _packed(file: Path, values: bool) -> dict[str, Any]:
    """The arguments of a ``Graph`` in the npz."""
    arrays: dict[str, np.ndarray] = {}
    cure = "write it again, with numpy.savez"
    with reading(file, cure, OSError, DamagedArray):
        archive = Archive(file)
        for name in ("edges", "features", "target"):
            if name not in archive.names:
                raise DataError(f"{file} has no array {name!r}, only {quoted(', '.join(archive.names))}: {cure}")
            arrays[name] = archive.read(name, f"{file}: array {name!r}", cure)
    edges, target = arrays["edges"], arrays["target"]
    if edges.ndim != 2 or edges.shape[1] != 2 or target.ndim != 1 or target.dtype.kind not in "biuf":
        raise DataError(f"{file}: edges must be (E, 2) and target one number a node: {cure}")
    labels = target.astype(np.float64) if values and target.dtype.kind != "f" else target
    return {"edge_index": edges.T, "features": arrays["features"], "labels": labels}


def _read_texts(file: Path) -> dict[str, Any]:
    """The columns of a CSV file by their names, each a pyarrow large_string.

    Raises:
        DataError: the file cannot be read, has no row, a row of another length, or a column twice.
    """
    import pyarrow
    from pyarrow import csv

    check_fits(_PER_BYTE_OF_CSV * file.stat().st_size, str(file), "take a machine with more memory")
    text = pyarrow.large_string()
    parse = csv.ParseOptions(newlines_in_values=True)
    try:
        header = csv.open_csv(file, csv.ReadOptions(use_threads=False), parse).schema.names
        if len(set(header)) < len(header):
            raise DataError(f"{file} has two columns of the same name in {quoted(', '.join(header))}: rename one")
        types = dict.fromkeys(header, text)
        convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False, check_utf8=True)
        table = csv.read_csv(file, csv.ReadOptions(use_threads=False), parse, convert)
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or quoted(first_line(error))
        raise DataError(f"{file} cannot be read ({reason}): write it again, as CSV with a header") from error
    if not table.num_rows:
        raise DataError(f"{file} has no row: write a header, and a row for each node or edge")
    return {name: pyarrow.concat_arrays(table.column(name).chunks) for name in header}  # from their starts


def _column_of(table: dict[str, Any], name: str, file: Path, key: str = "") -> Any:
    """The column ``name``.

    Args:
        key: the key of the dataset that names it; empty: the layout does.

    Raises:
        DataError: there is none.
    """
    if name not in table:
        cure = f"set dataset.{key} to one of them" if key else "name it so in the first line"
        raise DataError(f"{file} has no column {quoted(name)!r}, only {quoted(', '.join(table))}: {cure}")
    return table[name]
