"""Edge lists as SNAP publishes them: an arc a line, two integer ids and perhaps a weight, apart by tabs or blanks.

Data: Leskovec and Krevl, "SNAP Datasets" (2014), snap.stanford.edu/data; other collections publish the same. Lines that
begin with ``#`` or ``%`` are comments. A line "u v" is the arc u -> v, so that v reads from u ("FromNodeId ToNodeId").
Ids are any integers of 64 bits, in any order and with gaps: node i of the ``Graph`` has the i-th smallest id that is in
an arc, and ``Graph.node_names`` keeps the ids unless they are 0, 1, 2, ... already. There are neither features nor
labels.
"""

from pathlib import Path

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.words import existing_file, read_rows
from fullgnn.graph.graph import Graph
from fullgnn.storage.memory import check_fits

_BYTES_OF_ARC = 8 + 16  # the ids, and what it takes to sort the arcs by their targets
_SPARE = 1 << 20
_WANTED = {2: "two ids", 3: "two ids and a weight"}


def files(path: str) -> list[Path]:
    """The one file of ``load``.

    Raises:
        DataError: it is missing.
    """
    return [existing_file(path, "path", "an edge list, a line of two ids for each arc")]


def lacks() -> list[str]:
    """Both ``labels`` and ``train_mask``: an edge list has neither."""
    return ["labels", "train_mask"]


def load(name: str | None, path: str, weight: bool | None) -> Graph:
    """The graph of the edge list ``path``, plain or, with the suffix .gz, compressed.

    Arcs are stored as published. Of an undirected graph whose file has each edge once, ``symmetrize`` stores both
    directions.

    Args:
        weight: whether a third column is the weight; None: lines have two columns.

    Raises:
        ConfigError: the lines have a third column and ``weight`` is None, or they have none and it is true.
        DataError: the file is missing or has wrong contents; the message names it, and the line.
    """
    (file,) = files(path)
    pairs: list[np.ndarray] = []
    values: list[np.ndarray] = []
    columns, num_arcs = 0, 0
    for rows in read_rows(file, comments=b"#%"):
        if not len(rows):
            continue
        columns = rows.columns({columns: _WANTED[columns]} if columns else _WANTED)
        if columns == 3 and weight is None:
            raise ConfigError(
                f"{file} has three columns: set dataset.weight=true if the third one is the weight of the arc, or"
                " dataset.weight=false to leave it out"
            )
        if columns == 2 and weight:
            raise ConfigError(f"dataset.weight=true, and {file} has two columns: leave dataset.weight out")
        pairs.append(_narrow(np.stack([rows.integers(slice(column, None, columns)) for column in (0, 1)])))
        if columns == 3 and weight:
            values.append(rows.floats(slice(2, None, 3)))
        num_arcs += len(rows)
        check_fits(_BYTES_OF_ARC * len(rows), f"{file}: after {num_arcs} arcs, more of them", "take a larger machine")
    if not num_arcs:
        raise DataError(f"{file} has no arc: write two ids a line")
    ids, arcs = numbered(pairs, num_arcs, str(file))
    return Graph.from_edge_index(
        arcs,
        num_nodes=len(ids),
        edge_weight=np.concatenate(values) if values else None,
        node_names=None if _counts_up(ids) else ids,
        name=name or file.name.removesuffix(".gz").removesuffix(".txt"),
    )


def numbered(pairs: list[np.ndarray], num_arcs: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ids, (num_nodes,) int64, ascending; and the arcs by the places of their ids, (2, num_arcs) int32.

    Args:
        pairs: (2, n) integers each, num_arcs in all; the list is emptied, so that the memory of each is free early.
        what: begins the error of too many nodes.

    Raises:
        DataError: there are 2^31 ids or more.
    """
    low, high = min(int(some.min()) for some in pairs), max(int(some.max()) for some in pairs)
    arcs = np.empty((2, num_arcs), np.int32)
    done = 0
    is_compact = high - low < 4 * num_arcs + _SPARE  # then a table of all ids between them is small
    if is_compact:
        is_id = np.zeros(high - low + 1, bool)
        for some in pairs:
            is_id[some.ravel().astype(np.int64) - low] = True
        ids = np.flatnonzero(is_id) + low
        check_num_nodes(len(ids), what)
        place = np.cumsum(is_id, dtype=np.int32) - np.int32(1)
    else:
        ids = np.unique(np.concatenate([np.unique(some) for some in pairs])).astype(np.int64)
        check_num_nodes(len(ids), what)
    pairs.reverse()
    while pairs:
        some = pairs.pop()
        stop = done + some.shape[1]
        arcs[:, done:stop] = place[some.astype(np.int64) - low] if is_compact else np.searchsorted(ids, some)
        done = stop
    return ids, arcs


def _narrow(ids: np.ndarray) -> np.ndarray:
    """``ids`` as int32, if they fit."""
    limits = np.iinfo(np.int32)
    return ids.astype(np.int32) if limits.min <= ids.min() and ids.max() <= limits.max else ids


def _counts_up(ids: np.ndarray) -> bool:
    return int(ids[0]) == 0 and int(ids[-1]) == len(ids) - 1  # they ascend
