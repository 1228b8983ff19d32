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
from fullgnn.graph.arcs import ArcBuilder
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.given_files import existing_file
from fullgnn.graph.datasets.words import read_rows
from fullgnn.graph.graph import Graph
from fullgnn.graph.ids import IntegerIds, numbered
from fullgnn.graph.node_names import as_node_names
from fullgnn.telemetry.machine import check_fits

_BYTES_OF_ARC = 8  # at least
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
    ids, builder = IntegerIds(), ArcBuilder(weight_dtype=np.float64 if weight else None)
    columns = 0
    for rows in read_rows(file, comments=b"#%"):
        columns = rows.columns({columns: _WANTED[columns]} if columns else _WANTED)
        if columns == 3 and weight is None:
            raise ConfigError(
                f"{file} has three columns: set dataset.weight=true if the third one is the weight of the arc, or"
                " dataset.weight=false to leave it out"
            )
        if columns == 2 and weight:
            raise ConfigError(f"dataset.weight=true, and {file} has two columns: leave dataset.weight out")
        check_fits(
            _BYTES_OF_ARC * len(rows),
            f"{file}: after {len(builder)} arcs, more of them",
            "take a machine with more memory",
        )
        source, target = (
            ids.number(rows.integers(slice(column, None, columns)).astype(np.int64, copy=False)) for column in (0, 1)
        )
        builder.add(source, target, rows.floats(slice(2, None, 3)) if weight else None)
    if not len(builder):
        raise DataError(f"{file} has no arc: write two ids a line")
    check_num_nodes(len(ids), str(file))
    number, names = numbered(ids)
    del ids
    arcs = builder.finish(len(names), number)
    return Graph(
        arcs.indptr,
        arcs.indices,
        weight=arcs.weight,
        node_names=as_node_names(names),
        name=name or file.name.removesuffix(".gz").removesuffix(".txt"),
        remarks=arcs.remarks,
    )
