"""A ``Graph`` from the graph of another library."""

import sys
from typing import Any

from scipy.sparse import issparse

from fullgnn.errors import DataError
from fullgnn.graph.dgl import is_dgl_graph
from fullgnn.graph.graph import Graph
from fullgnn.graph.ogb import is_ogb
from fullgnn.graph.pyg import is_pyg_data


def as_graph(value: Any) -> Graph:
    """``value`` itself if it is a ``Graph``, or else the graph that it stands for.

    - A networkx graph: ``Graph.from_networkx(value)``, without weights, with the graph's own name.
    - A scipy sparse matrix: ``Graph.from_scipy(value)``; a stored entry (i, j) means that i reads from j.
    - A PyTorch Geometric ``Data``: ``Graph.from_pyg(value)``, with its features, labels and masks. The first two have
      none of these. Where its ``edge_attr`` may or may not be weights, the error says how to call ``Graph.from_pyg``.
    - A DGLGraph: ``Graph.from_dgl(value)``, with its features, labels and masks.
    - A node property prediction dataset of OGB, or its pair of graph and labels: ``Graph.from_ogb(value)``.

    Raises:
        DataError: ``value`` is of another type, or its contents are no graph.
    """
    if isinstance(value, Graph):
        return value
    networkx = sys.modules.get("networkx")  # whoever has a networkx graph has imported it
    if networkx is not None and isinstance(value, networkx.Graph):
        return Graph.from_networkx(value, name=str(value.name or "graph"))
    if issparse(value):
        return Graph.from_scipy(value)
    if is_ogb(value):
        return Graph.from_ogb(value)
    if is_dgl_graph(value):
        return Graph.from_dgl(value)
    if is_pyg_data(value):
        return Graph.from_pyg(value)
    raise DataError(
        f"{type(value).__name__} is no type of a graph: pass a fullgnn.Graph, a networkx graph, a scipy sparse matrix,"
        " a PyTorch Geometric Data, a DGLGraph or a dataset of OGB; Graph.from_edge_index makes a Graph of arrays, and"
        " Graph.load reads a file"
    )
