"""The edges of a table as arcs between numbered nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.arcs import ArcBuilder, Arcs
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.table_columns import EdgeColumns
from fullgnn.graph.datasets.table_source import Piece, Source
from fullgnn.graph.datasets.table_values import Ids, keys_of, numbers_of, text_at
from fullgnn.graph.ids import IntegerIds, as_node_names, ranks_in
from fullgnn.graph.node_names import NodeNames, Texts
from fullgnn.storage.memory import check_fits

_BYTES_OF_ARC = 8  # at least


@dataclass(frozen=True, eq=False)
class NumberedArcs:
    """The arcs, and the names of their nodes."""

    arcs: Arcs
    names: NodeNames | None  # None: the nodes are named 0, 1, 2, ...
    num_dropped: int


def read_edges(
    tables: Sequence[Source],
    columns: Sequence[EdgeColumns],
    held: list[Ids],
    kind: str,
    unknown: str | None,
) -> NumberedArcs:
    """Read all edges. An edge from source to target makes the target read from the source.

    Without a table of nodes, these are the ids of the edges in ascending order: integers by value, texts by Unicode.
    Nodes that are added to those of a table follow them, in the same order.

    Args:
        columns: of each table; all have a weight, or none has.
        held: the numbers of the nodes of the tables of nodes, empty without these. The list loses its only element,
            whose memory is given back before the arcs are sorted.
        unknown: what happens to an edge whose node is not among them: refuse, add or drop; None: there is no table of
            nodes.

    Raises:
        DataError: a value is missing or wrong; the message names the table, the row and the column.
    """
    ids = held.pop()
    num_given, num_dropped = len(ids), 0
    num_arcs = sum(table.num_rows or 0 for table in tables)
    check_fits(_BYTES_OF_ARC * num_arcs, f"{tables[0].name} with {num_arcs} edges", "take a machine with more memory")
    builder = ArcBuilder(num_arcs, _weight_dtype(tables, columns))
    for table, named in zip(tables, columns):
        kinds = {named.source: kind, named.target: kind} | ({named.weight: "number"} if named.weight else {})
        for piece in table.pieces(kinds):
            ends = [_codes(piece, name, ids, unknown) for name in (named.source, named.target)]
            weight = None if named.weight is None else numbers_of(piece, named.weight, "a weight")
            if unknown == "drop" and min(one.min(initial=0) for one in ends) < 0:
                kept = (ends[0] >= 0) & (ends[1] >= 0)
                num_dropped += len(kept) - int(np.count_nonzero(kept))
                ends, weight = [one[kept] for one in ends], None if weight is None else weight[kept]
            builder.add(ends[0], ends[1], weight)
    if not len(ids):
        raise DataError(f"{tables[0].name} has no edge: there are no nodes without a table of nodes")
    check_num_nodes(len(ids), f"the graph of {tables[0].name}")
    number, names = _numbered(ids, num_given, known=unknown is not None)
    del ids
    return NumberedArcs(builder.finish(len(names), number), as_node_names(names), num_dropped)


def _numbered(ids: Ids, num_given: int, known: bool) -> tuple[np.ndarray | None, NodeNames]:
    """The number of each node by the order in which it arrived, or None; and the names by number."""
    if known and len(ids) == num_given:
        return None, _copied(ids)
    order = ids.in_order()
    if known:
        order = np.concatenate([np.arange(num_given), order[order >= num_given]])
    return ranks_in(order), ids.names[order]


def _copied(ids: Ids) -> NodeNames:
    """The names, without the room that ``ids`` has for others."""
    return ids.names.copy() if isinstance(ids, IntegerIds) else Texts(ids.names.ends.copy(), ids.names.utf8.copy())


def _codes(piece: Piece, column: str, ids: Ids, unknown: str | None) -> np.ndarray:
    """(n,) int32 numbers of the nodes in a column, -1 where they are unknown and dropped."""
    keys: Any = keys_of(piece, column)
    if unknown in (None, "add"):
        return ids.number(*keys)
    codes = ids.find(*keys)
    if unknown == "refuse" and (codes < 0).any():
        row = int((codes < 0).argmax())
        raise DataError(
            f"{piece.where(row, column)} has the node {text_at(piece.columns[column], row)}, which the table of nodes"
            " does not have: add it there, or choose dataset.unknown_nodes=drop (such edges) or add (such nodes)"
        )
    return codes


def _weight_dtype(tables: Sequence[Source], columns: Sequence[EdgeColumns]) -> Any:
    """float32 where all weights are stored so, float64 otherwise; None without weights."""
    if columns[0].weight is None:
        return None
    types = {str(table.types[one.weight or ""]) for table, one in zip(tables, columns)}
    return np.float32 if types <= {"float", "halffloat"} else np.float64
