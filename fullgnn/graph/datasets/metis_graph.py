"""Graphs in the text format of METIS, which Chaco, KaHIP, Scotch and the DIMACS challenges use as well (``.graph``).

Format: Karypis, "METIS: a software package for partitioning unstructured graphs", version 5 (2013), section 4.1.1.
Lines that begin with ``%`` are comments. The first other line has the numbers of nodes and edges, and perhaps ``fmt``
and ``ncon``. The digits of ``fmt`` say what else is there: 1 is weights of edges, 10 weights of nodes (``ncon`` of them
a node, 1 if it is not given), 100 sizes of nodes. Then comes a line for each node: its size, its weights, and its
neighbors, which count from 1, each one with the weight of the edge behind it. The line of a node without neighbors and
weights is empty. The graph is undirected, and each edge stands in the lines of both of its nodes. There are neither
features nor labels.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.given_files import existing_file
from fullgnn.graph.datasets.words import WordRows, read_rows
from fullgnn.graph.graph import Graph
from fullgnn.telemetry.machine import check_fits

_BYTES_OF_ARC = 24
_MAX_WEIGHTS = 1 << 20  # of a node


@dataclass(frozen=True)
class _MetisHeader:
    num_nodes: int
    num_edges: int
    skipped: int
    """Numbers at the start of each line: the size and the weights of a node."""
    has_edge_weights: bool


def files(path: str) -> list[Path]:
    """The one file of ``load``.

    Raises:
        DataError: it is missing.
    """
    return [existing_file(path, "path", "a graph in the format of METIS")]


def lacks() -> list[str]:
    """Both ``labels`` and ``train_mask``: the format has neither."""
    return ["labels", "train_mask"]


def load(name: str | None, path: str) -> Graph:
    """The graph in the file ``path``, plain or, with the suffix .gz, compressed.

    Sizes and weights of nodes are not read; a remark has the number of nodes.

    Raises:
        DataError: the file is missing or has wrong contents, or other numbers of nodes and edges than its first line
            says, or an edge in the line of one of its nodes only; the message names the file.
    """
    (file,) = files(path)
    header: _MetisHeader | None = None
    pieces = [(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0))]
    num_rows, num_arcs = 0, 0
    for rows in read_rows(file, comments=b"%", keeps_empty=True):
        if header is None:
            header, rows = _header(rows), rows[1:]
        given = np.diff(rows.first)
        if num_rows + len(rows) > header.num_nodes:
            after = np.flatnonzero(given[header.num_nodes - num_rows :])
            if len(after):
                row = int(after[0]) + header.num_nodes - num_rows
                raise rows.error(row, f"follows those of the {header.num_nodes} nodes that the first line announces")
            rows = rows[: header.num_nodes - num_rows]
        num_rows += len(rows)
        if not len(rows):
            continue
        pieces.append(_neighbors(rows, header))
        num_arcs += len(pieces[-1][0])
        check_fits(_BYTES_OF_ARC * num_arcs, f"{file}: {num_arcs} arcs or more", "take a machine with more memory")
    if header is None:
        raise DataError(f"{file} is empty: write the numbers of nodes and edges, and a line for each node")
    source, counts, weight = map(np.concatenate, zip(*pieces))
    if num_rows == header.num_nodes - 1:  # the last line is empty, and so is what follows the last line end
        num_rows, counts = header.num_nodes, np.append(counts, 0)
    if num_rows < header.num_nodes:
        raise _disagreement(file, f"{header.num_nodes} nodes, and {num_rows} have a line")
    if num_arcs != 2 * header.num_edges:
        raise _disagreement(
            file,
            f"{header.num_edges} edges, and the lines have {num_arcs} neighbors, not {2 * header.num_edges}, two an"
            " edge",
        )
    target = np.repeat(np.arange(header.num_nodes, dtype=np.int32), counts)
    graph = Graph.from_edge_index(
        np.stack([source, target]),
        num_nodes=header.num_nodes,
        edge_weight=weight if header.has_edge_weights else None,
        name=name or file.name.removesuffix(".gz").removesuffix(".graph"),
        remarks={"unread_node_weights": header.num_nodes if header.skipped else 0},
    )
    if not graph.is_symmetric:
        raise _one_way(file, graph)
    return graph


def _header(rows: WordRows) -> _MetisHeader:
    """What the first row says."""
    count = int(rows.first[1])
    if not 2 <= count <= 4:
        raise rows.error(0, "must have the numbers of nodes and edges, and perhaps fmt and ncon")
    num_nodes, num_edges, _, ncon = [*rows.integers(slice(0, count)).tolist(), 0, 0][:4]
    fmt = rows.word(2).zfill(3) if count > 2 else "000"
    if num_nodes < 1 or num_edges < 0:
        raise rows.error(0, f"has {num_nodes} nodes and {num_edges} edges, and a graph has at least one node")
    if len(fmt) != 3 or fmt.strip("01"):
        raise rows.error(0, f"has fmt {rows.word(2)}, and its three digits are 0 or 1")
    if ncon > _MAX_WEIGHTS or (count == 4 and (ncon < 1) == (fmt[1] == "1")):
        raise rows.error(0, f"has ncon {ncon} and fmt {fmt}, whose second digit says whether nodes have weights")
    check_num_nodes(num_nodes, str(rows.file))
    check_fits(16 * num_nodes, f"{rows.file}, which announces {num_nodes} nodes,", "correct its first line")
    num_weights = (ncon if count == 4 else 1) if fmt[1] == "1" else 0
    return _MetisHeader(num_nodes, num_edges, num_weights + int(fmt[0]), fmt[2] == "1")


def _neighbors(rows: WordRows, header: _MetisHeader) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The neighbors of all rows, from 0, int32; the number of them in each row; and the weights, float64."""
    given = np.diff(rows.first) - header.skipped
    step = 2 if header.has_edge_weights else 1
    wrong = np.flatnonzero((given < 0) | (given % step != 0))
    if len(wrong):
        row = int(wrong[0])
        problem = f"has {given[row] + header.skipped} numbers"
        if given[row] < 0:
            raise rows.error(row, f"{problem}, and {header.skipped} of the node itself come first")
        raise rows.error(row, f"{problem}, and each neighbor has a weight behind it")
    place = np.arange(len(rows.start)) - np.repeat(rows.first[:-1], np.diff(rows.first)) - header.skipped
    words = np.flatnonzero((place >= 0) & (place % step == 0))
    ids = rows.integers(words)
    odd = np.flatnonzero((ids < 1) | (ids > header.num_nodes))
    if len(odd):
        row = rows.row_of(int(words[odd[0]]))
        raise rows.error(row, f"has the neighbor {ids[odd[0]]}, and nodes are 1 to {header.num_nodes}")
    weights = rows.floats(words + 1) if header.has_edge_weights else np.empty(0)
    return (ids - 1).astype(np.int32), given // step, weights


def _disagreement(file: Path, what: str) -> DataError:
    return DataError(f"{file} announces {what}: correct its first line, or write the file again if it is cut off")


def _one_way(file: Path, graph: Graph) -> DataError:
    """The error of an edge that one of its nodes does not list, or lists with another weight."""
    adj = graph.adjacency()
    rows, columns = (adj - adj.T).nonzero()
    u, v = int(rows[0]) + 1, int(columns[0]) + 1
    return DataError(
        f"{file} has the edge of {u} and {v} in the line of one of them only, or with another weight: write each edge"
        " in both lines"
    )
