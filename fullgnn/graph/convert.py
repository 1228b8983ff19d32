"""A ``Graph`` from the graph of another library."""

import sys
from typing import Any

from scipy.sparse import issparse

from fullgnn.errors import DataError
from fullgnn.graph.dgl import dgl_fields, is_dgl_graph
from fullgnn.graph.graph import Graph
from fullgnn.graph.masks import MASKS, has_columns
from fullgnn.graph.ogb import is_ogb
from fullgnn.graph.pyg import is_pyg_data, pyg_fields


def as_graph(value: Any, split: int | str | None = None) -> Graph:
    """``value`` itself if it is a ``Graph``, or else the graph that it stands for.

    - A networkx graph: ``Graph.from_networkx(value)``, without weights, with the graph's own name.
    - A scipy sparse matrix: ``Graph.from_scipy(value)``; a stored entry (i, j) means that i reads from j.
    - A PyTorch Geometric ``Data``: ``Graph.from_pyg(value)``, with its features, labels and masks. The first two have
      none of these. Where its ``edge_attr`` may or may not be weights, the error says how to call ``Graph.from_pyg``.
    - A DGLGraph: ``Graph.from_dgl(value)``, with its features, labels and masks.
    - A node property prediction dataset of OGB, or its pair of graph and labels: ``Graph.from_ogb(value)``.

    Args:
        split: of masks with a split a column, (num_nodes, s), the number of one, or the name of a method by which the
            nodes are split afterwards, without these masks; see ``has_splits_in_columns``.

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
        return Graph.from_edge_index(**dgl_fields(value, None, "feat", "label", split))
    if is_pyg_data(value):
        return Graph.from_edge_index(**pyg_fields(value, split=split))
    raise DataError(
        f"{type(value).__name__} is no type of a graph: pass a fullgnn.Graph, a networkx graph, a scipy sparse matrix,"
        " a PyTorch Geometric Data, a DGLGraph or a dataset of OGB; Graph.from_edge_index makes a Graph of arrays, and"
        " Graph.load reads a file"
    )


def has_splits_in_columns(value: Any) -> bool:
    """Whether ``value`` is a graph of PyTorch Geometric or DGL whose masks are matrices, with a split a column."""
    if isinstance(value, Graph) or is_ogb(value):
        return False
    if is_dgl_graph(value):
        return has_columns(value.ndata.get(name) for name in MASKS)
    return is_pyg_data(value) and has_columns(getattr(value, name, None) for name in MASKS)
