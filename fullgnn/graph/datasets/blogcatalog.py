"""BlogCatalog and other graphs in the CSV layout of the ASU Social Computing Data Repository: several labels a node.

Data: Tang and Liu, "Relational learning via latent social dimensions" (2009). A folder has four files without headers:

- ``nodes.csv``, ``groups.csv``: ids of the nodes and of the groups, one a line, counting from 1;
- ``edges.csv``: two nodes a line, each undirected edge once;
- ``group-edges.csv``: a node and a group a line; a node may be in several groups.

There are neither features nor a split. Groups are labels: node i of the ``Graph`` has the id i + 1 in the files, and
label k says whether it is in group k + 1.
"""

import re
from pathlib import Path

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.graph.checks import reading
from fullgnn.graph.datasets.given_files import in_folder
from fullgnn.graph.datasets.words import read_text
from fullgnn.graph.graph import Graph
from fullgnn.graph.splits import SplitKeys, draw
from fullgnn.telemetry.machine import check_fits


def files(path: str) -> list[Path]:
    """The four files of ``load``: nodes, groups, edges, and the groups of the nodes.

    Raises:
        DataError: a file is missing.
    """
    names = ("nodes.csv", "groups.csv", "edges.csv", "group-edges.csv")
    return in_folder(path, names, f"set dataset.path to a folder with {', '.join(names[:-1])} and {names[-1]}")


def load(name: str, path: str, train_fraction: float, val_fraction: float, seed: int) -> Graph:
    """The graph in the folder ``path``, with labels (num_nodes, num_groups) and a random split of the labelled nodes.

    Arcs are stored as published, in one direction (set ``symmetrize`` for the undirected graph).

    Raises:
        DataError: a file is missing or has wrong contents; the message names it.
    """
    nodes_file, groups_file, edges_file, members_file = files(path)
    num_nodes, num_groups = _count(nodes_file), _count(groups_file)
    edges = _read(edges_file, (num_nodes, num_nodes))
    members = _read(members_file, (num_nodes, num_groups))
    check_fits(
        num_nodes * num_groups, f"{path}: labels of {num_nodes} nodes in {num_groups} groups", "leave out groups"
    )
    labels = np.zeros((num_nodes, num_groups), dtype=np.int8)
    labels[members[:, 0], members[:, 1]] = 1
    split, noted = draw("random", labels, SplitKeys(train_fraction, val_fraction), seed)
    return Graph.from_edge_index(edges.T, num_nodes=num_nodes, labels=labels, name=name, remarks=noted, **split)


def _count(file: Path) -> int:
    """The number of ids in a file that lists all of them, in any order."""
    ids = _numbers(file, 1)[:, 0]
    if not np.array_equal(np.sort(ids), np.arange(1, len(ids) + 1)):
        raise DataError(f"{file} must list the ids 1, 2, ... once each: number the ids so, in all four files")
    return len(ids)


def _read(file: Path, largest: tuple[int, int]) -> np.ndarray:
    """(num_lines, 2) int64, two ids a line, which then count from 0.

    Args:
        largest: the largest id of each column.
    """
    pairs = _numbers(file, 2)
    for column, most in zip(pairs.T, largest):
        wrong = column[(column < 1) | (column > most)]
        if len(wrong):
            raise DataError(
                f"{file} has the id {wrong[0]}, and ids are 1 to {most}: correct it, or list it in nodes.csv or"
                " groups.csv"
            )
    return pairs - 1


def _numbers(file: Path, columns: int) -> np.ndarray:
    """(num_lines, columns) int64, separated by commas. Empty lines do not count."""
    wanted = "a number" if columns == 1 else f"{columns} numbers, separated by a comma"
    text = read_text(file)
    with reading(file, f"write lines of {wanted}, and nothing else", OverflowError, ValueError):
        strange = ~np.isin(text, list(b"0123456789+-,\n\r\t "))  # numpy would drop what follows #, and read 1.7 as 1
        if strange.any():
            place = int(strange.argmax())
            line = len(re.split(rb"\r\n|\r|\n", text[:place].tobytes()))
            around = quoted(text[max(0, place - 10) : place + 10].tobytes().decode("latin1"))
            raise ValueError(f"line {line} has other things than integers: {around}")
        if not text.size or text.max() <= ord(","):  # has no digit
            raise DataError(f"{file} is empty: write lines of {columns} numbers, separated by commas")
        rows = np.loadtxt(file, dtype=np.int64, delimiter=",", comments=None, ndmin=2)
        if rows.shape[1] != columns:
            raise ValueError(f"a line has {rows.shape[1]} numbers")
    return rows
