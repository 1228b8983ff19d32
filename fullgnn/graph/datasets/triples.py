"""Labelled pairs with a weight, the "ABC" form of MCL and HipMCL: two names and a number a line.

Form: van Dongen, "Graph clustering by flow simulation" (2000), micans.org/mcl; Azad et al., "HipMCL" (2018). Words are
apart by tabs if the first line has a tab, so that names may have blanks, or else by blanks. The number may be left out:
each pair counts 1 then. The first line may be a header. A line "u v w" is the arc u -> v, so that v reads from u.

Nodes are numbered as they appear, in each line the first name before the second; ``Graph.node_names`` keeps the names.
There are neither features nor labels.
"""

from pathlib import Path

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.given_files import existing_file
from fullgnn.graph.datasets.named import node_names_of
from fullgnn.graph.datasets.words import WordRows, arrow_texts, read_rows
from fullgnn.graph.graph import Graph
from fullgnn.graph.ids import TextIds
from fullgnn.telemetry.machine import check_fits

_BYTES_OF_ARC = 40
_WANTED = {2: "two names", 3: "two names and a weight"}
_NAMES = (".txt", ".tsv", ".csv", ".abc", ".triples")  # suffixes that are no part of a graph's name


def files(path: str) -> list[Path]:
    """The one file of ``load``.

    Raises:
        DataError: it is missing.
    """
    return [existing_file(path, "path", "a file with two names and a weight a line")]


def lacks() -> list[str]:
    """Both ``labels`` and ``train_mask``: the form has neither."""
    return ["labels", "train_mask"]


def load(name: str | None, path: str, header: bool | None) -> Graph:
    """The graph of the pairs in the file ``path``, plain or, with the suffix .gz, compressed.

    Arcs are stored as published. Pairs that are repeated are added, and pairs of weight 0 are dropped.

    Args:
        header: whether the first line is a header; None: it is if its third word is no number.

    Raises:
        DataError: the file is missing or has wrong contents; the message names it, and the line.
    """
    (file,) = files(path)
    ids, codes, weights = TextIds(), [], []
    columns, num_arcs = 0, 0
    num_header_lines: int | None = None
    for rows in read_rows(file, separator=_separator(file)):
        if num_header_lines is None:
            num_header_lines = int(_has_header(rows) if header is None else header)
            rows = rows[num_header_lines:]
        if not len(rows):
            continue
        columns = rows.columns({columns: _WANTED[columns]} if columns else _WANTED)
        words = np.arange(len(rows.start)).reshape(-1, columns)
        _check_names(rows, words[:, :2].ravel())
        codes.append(ids.number(*arrow_texts(rows.texts(words[:, :2].ravel()))))
        if columns == 3:
            weights.append(rows.floats(words[:, 2]))
        num_arcs += len(rows)
        check_fits(_BYTES_OF_ARC * num_arcs, f"{file}: {num_arcs} pairs or more", "take a machine with more memory")
    if not num_arcs:
        raise DataError(f"{file} has no pair: write two names and a weight a line")
    check_num_nodes(len(ids), str(file))
    stem = file.name.removesuffix(".gz")
    return Graph.from_edge_index(
        np.ascontiguousarray(np.concatenate(codes).reshape(-1, 2).T),
        num_nodes=len(ids),
        edge_weight=np.concatenate(weights) if weights else None,
        node_names=node_names_of(ids.names.to_arrow()),
        name=name or (Path(stem).stem if Path(stem).suffix in _NAMES else stem),
        remarks={"header_lines": num_header_lines or 0 if header is None else 0},
    )


def _separator(file: Path) -> str:
    """A tab if the first line that is not empty has one, or else the empty text, for blanks."""
    rows = next(read_rows(file), None)
    if rows is None:
        return ""
    line = rows.text[rows.start[0] : rows.end[rows.first[1] - 1]]
    return "\t" if (line == ord("\t")).any() else ""


def _has_header(rows: WordRows) -> bool:
    """Whether the first row has three words, and the third one is no number."""
    return rows.first[1] == 3 and not rows.is_number(2)


def _check_names(rows: WordRows, words: np.ndarray) -> None:
    """Refuse an empty name, which tabs make possible."""
    empty = np.flatnonzero(rows.start[words] == rows.end[words])
    if len(empty):
        raise rows.error(rows.row_of(int(words[empty[0]])), "has an empty name")
