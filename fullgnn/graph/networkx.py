"""Read a networkx graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scipy.sparse import csc_array

from fullgnn.errors import DataError
from fullgnn.graph.checks import first_line
from fullgnn.graph.node_names import names_of

if TYPE_CHECKING:
    import networkx


def networkx_fields(g: networkx.Graph, weight: str | None) -> tuple[csc_array, list[Any] | None, int]:
    """The adjacency of ``g``, whose rows list what a node reads from; the names of its nodes, or None; and how many
    arcs repeat another one. See ``Graph.from_networkx``.

    Raises:
        DataError: ``g`` has no nodes, or an edge lacks the attribute ``weight``, or has no number there.
    """
    import networkx

    if g.number_of_nodes() == 0:
        raise DataError("the graph has no nodes: a Graph needs at least one")
    if weight is not None and len(networkx.get_edge_attributes(g, weight)) < g.number_of_edges():
        raise DataError(f"some edges have no attribute {weight!r}: set it on every edge, or pass weight=None")
    try:
        arcs = networkx.to_scipy_sparse_array(g, weight=weight, format="csr")
    except (TypeError, ValueError) as error:
        raise DataError(f"edge attribute {weight!r} is not numeric: {first_line(error)}") from error
    num_arcs = g.number_of_edges() if g.is_directed() else 2 * g.number_of_edges() - networkx.number_of_selfloops(g)
    adj = (arcs if weight is not None else arcs.astype(bool)).T
    return adj, names_of(list(g.nodes)), num_arcs - arcs.nnz
