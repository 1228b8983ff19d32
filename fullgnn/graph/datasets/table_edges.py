"""The edges of a table as arcs between numbered nodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.arcs import ArcBuilder
from fullgnn.graph.datasets.table_columns import EdgeColumns
from fullgnn.graph.datasets.table_source import Source
from fullgnn.graph.datasets.table_values import NO_NODE, Ids, codes_of, numbers_of
from fullgnn.graph.ids import IntegerIds, ranks_in
from fullgnn.graph.node_names import NodeNames, Texts
from fullgnn.telemetry.machine import check_fits

_BYTES_OF_ARC = 8  # at least


def read_edges(
    tables: Sequence[Source], columns: Sequence[EdgeColumns], ids: Ids, kind: str, unknown: str
) -> tuple[ArcBuilder, int]:
    """Read all edges as arcs between the numbers of their nodes. An edge from source to target makes the target read
    from the source.

    Args:
        columns: of each table; all have a weight, or none has.
        ids: the numbers of the nodes of the tables of nodes; nodes that are added get the next ones.
        unknown: what happens to an edge whose node has no number: refuse, add or drop.

    Returns:
        the arcs, and how many edges were dropped.

    Raises:
        DataError: a value is missing or wrong; the message names the table, the row and the column.
    """
    num_dropped, num_arcs = 0, sum(table.num_rows or 0 for table in tables)
    check_fits(_BYTES_OF_ARC * num_arcs, f"{tables[0].name} with {num_arcs} edges", "take a machine with more memory")
    builder = ArcBuilder(num_arcs, _weight_dtype(tables, columns))
    for table, named in zip(tables, columns):
        kinds = {named.source: kind, named.target: kind} | ({named.weight: "number"} if named.weight else {})
        for piece in table.pieces(kinds):
            ends = [codes_of(piece, name, ids, unknown, NO_NODE) for name in (named.source, named.target)]
            weight = None if named.weight is None else numbers_of(piece, named.weight, "a weight")
            if unknown == "drop" and min(codes.min(initial=0) for codes in ends) < 0:
                kept = (ends[0] >= 0) & (ends[1] >= 0)
                num_dropped += len(kept) - int(np.count_nonzero(kept))
                ends, weight = [codes[kept] for codes in ends], None if weight is None else weight[kept]
            builder.add(ends[0], ends[1], weight)
    if not len(ids):
        raise DataError(f"{tables[0].name} has no edge: there are no nodes without a table of nodes")
    return builder, num_dropped


def numbered(ids: Ids, num_given: int) -> tuple[np.ndarray | None, NodeNames]:
    """The number of each node by the order in which it arrived, or None; and the names by number.

    Nodes of the tables of nodes keep their order, and those that were added follow in ascending order: integers by
    value, texts by Unicode.

    Args:
        num_given: how many nodes the tables of nodes have.
    """
    if num_given and len(ids) == num_given:
        return None, _copied(ids)
    order = ids.in_order()
    if num_given:
        order = np.concatenate([np.arange(num_given), order[order >= num_given]])
    return ranks_in(order), ids.names[order]


def _copied(ids: Ids) -> NodeNames:
    """The names, without the room that ``ids`` has for others."""
    return ids.names.copy() if isinstance(ids, IntegerIds) else Texts(ids.names.ends.copy(), ids.names.utf8.copy())


def _weight_dtype(tables: Sequence[Source], columns: Sequence[EdgeColumns]) -> Any:
    """float32 where all weights are stored so, float64 otherwise; None without weights."""
    if columns[0].weight is None:
        return None
    types = {str(table.types[cols.weight or ""]) for table, cols in zip(tables, columns)}
    return np.float32 if types <= {"float", "halffloat"} else np.float64
