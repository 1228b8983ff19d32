"""A ``Graph`` from the graph of another library, and a ``Graph`` as a ``torch_geometric.data.Data``. Graphs of PyTorch
Geometric, DGL and OGB are known by their attributes, so that nobody needs these libraries."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csc_array, issparse

from fullgnn.errors import DataError, UnsupportedError
from fullgnn.graph.checks import first_line, to_array, to_integers, to_numpy
from fullgnn.graph.graph import Graph
from fullgnn.graph.labels import is_labelled
from fullgnn.graph.masks import MASKS, chosen_split, has_columns
from fullgnn.graph.node_names import names_of

if TYPE_CHECKING:
    import networkx


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
    loaded = sys.modules.get("networkx")  # whoever has a networkx graph has imported it
    if loaded is not None and isinstance(value, loaded.Graph):
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


def is_ogb(value: Any) -> bool:
    """Whether ``value`` is a dataset of OGB with a split of its nodes, or the pair of its graph and labels."""
    if isinstance(value, tuple) and len(value) == 2:
        return isinstance(value[0], Mapping) and not {"edge_index", "edge_index_dict"}.isdisjoint(value[0])
    return hasattr(value, "get_idx_split") and hasattr(value, "__getitem__")


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


def is_dgl_graph(value: Any) -> bool:
    """Whether ``value`` has the attributes of a DGLGraph."""
    return all(hasattr(value, name) for name in ("ndata", "edata", "edges", "num_nodes", "ntypes"))


def dgl_fields(
    g: Any, edge_weight: str | None, features: str, labels: str, split: int | str | None = None
) -> dict[str, Any]:
    """The arguments of ``Graph.from_edge_index`` that ``g`` holds; see ``Graph.from_dgl``.

    Args:
        split: see ``chosen_split``.

    Raises:
        DataError: ``g`` has nodes or edges of several types, lacks ``edge_weight``, or has masks of several splits of
            which ``split`` is none.
    """
    if not is_dgl_graph(g):
        raise DataError(f"{type(g).__name__} is no DGLGraph: pass one, or make a Graph with Graph.from_edge_index")
    if len(g.ntypes) != 1 or len(g.etypes) != 1:
        raise DataError(
            f"the DGLGraph has {len(g.ntypes)} types of nodes and {len(g.etypes)} of edges, and a Graph has one of"
            " each: pass dgl.to_homogeneous(g)"
        )
    of_edges = sorted(name for name in g.edata if not name.startswith("_"))  # such as _ID, which DGL itself sets
    if edge_weight is not None and edge_weight not in g.edata:
        known = ", ".join(of_edges) or "none"
        raise DataError(f"g.edata has no {edge_weight!r}: pass one of its names ({known}), or edge_weight=None")
    weight = None if edge_weight is None else g.edata[edge_weight]
    sources, targets = (to_integers(ends, "g.edges()") for ends in g.edges())
    masks = {name: g.ndata.get(name) for name in MASKS}
    if split is not None or has_columns(masks.values()):
        cure = "Graph.from_dgl(g, split=0), or dataset.split=0 of a run"
        masks = chosen_split(masks, split, int(g.num_nodes()), cure)
    return dict(
        edge_index=np.stack([sources, targets]),
        features=g.ndata.get(features),
        labels=g.ndata.get(labels),
        num_nodes=int(g.num_nodes()),
        edge_weight=_one_column(weight),
        remarks={"unread_edge_data": len(of_edges) if edge_weight is None else 0},
        **masks,
    )


def is_pyg_data(value: Any) -> bool:
    """Whether ``value`` has the attributes of a PyTorch Geometric ``Data`` or ``HeteroData``."""
    return any(hasattr(value, name) for name in ("edge_index", "edge_types", "adj_t"))


def pyg_fields(data: Any, edge_weight: Any = "auto", split: int | str | None = None) -> dict[str, Any]:
    """The arguments of ``Graph.from_edge_index`` that ``data`` holds; see ``Graph.from_pyg``.

    Args:
        split: see ``chosen_split``.

    Raises:
        DataError: ``data`` has no edges, an ``edge_attr`` that may or may not be weights, or masks of several splits of
            which ``split`` is none.
    """
    if hasattr(data, "edge_types"):
        raise DataError("a HeteroData has nodes of several types, and a Graph has one: pass data.to_homogeneous()")
    features, num_nodes = getattr(data, "x", None), getattr(data, "num_nodes", None)
    edge_index, values, adj_t = getattr(data, "edge_index", None), None, getattr(data, "adj_t", None)
    if edge_index is None:
        if adj_t is None:
            raise DataError("the PyTorch Geometric Data has no edge_index and no adj_t: set one of them")
        edge_index, values, num_nodes = _arcs_of(adj_t)
    remarks: dict[str, int] = {}
    if not isinstance(edge_weight, str) or edge_weight != "auto":
        weight = edge_weight
    elif values is not None and not (values == 1).all():
        weight = _floating(values, "adj_t", "data.adj_t.coo()[2]" if hasattr(adj_t, "coo") else "data.adj_t.values()")
    else:
        weight, remarks = _weights(data)
    masks = {name: getattr(data, name, None) for name in MASKS}
    if split is not None or has_columns(masks.values()):
        num_nodes = len(features) if features is not None else int(num_nodes or 0)
        masks = chosen_split(masks, split, num_nodes, "Graph.from_pyg(data, split=0), or dataset.split=0 of a run")
    return dict(
        edge_index=edge_index,
        features=features,
        labels=getattr(data, "y", None),
        num_nodes=num_nodes if features is None else None,
        edge_weight=_one_column(weight),
        remarks=remarks,
        **masks,
    )


def _one_column(weight: Any) -> Any:
    """The ``weight`` of each edge, (E,), which may be given as (E, 1)."""
    return weight.reshape(-1) if getattr(weight, "ndim", 1) == 2 and weight.shape[1] == 1 else weight


def _weights(data: Any) -> tuple[Any, dict[str, int]]:
    """One weight an edge, or None, and the remarks: ``edge_weight``, or else floating-point numbers of ``edge_attr``.

    Raises:
        DataError: ``edge_attr`` has one integer or boolean an edge.
    """
    weight, attributes = getattr(data, "edge_weight", None), getattr(data, "edge_attr", None)
    if weight is not None or attributes is None:
        return weight, {}
    attributes = to_array(attributes, "edge_attr")
    if attributes.ndim > 1 and attributes.shape[1:] != (1,):
        return None, {"unread_edge_attr": attributes[:1].size}
    attributes = _floating(to_numpy(attributes, "edge_attr"), "edge_attr", "data.edge_attr")
    return attributes.reshape(-1), {"edge_attr_weights": attributes.size}


def _floating(values: np.ndarray, name: str, weights: str) -> np.ndarray:
    """``values`` if they are floating-point numbers.

    Raises:
        DataError: they are integers or booleans, and may or may not be weights.
    """
    if values.dtype.kind in "biu" and values.size:
        raise DataError(
            f"{name} holds {values.dtype} numbers, which may be relations, times or weights: pass"
            " Graph.from_pyg(data, edge_weight=None) for a graph without weights, or"
            f" Graph.from_pyg(data, edge_weight={weights}) if they are its weights"
        )
    return values


def _arcs_of(adj_t: Any) -> tuple[np.ndarray, np.ndarray | None, int]:
    """The arcs of ``adj_t``, (2, E) sources above targets, the number that it has for each of them, or None, and the
    number of nodes. Its rows are targets.

    Args:
        adj_t: a SparseTensor of torch_sparse, or a sparse tensor of torch.
    """
    if hasattr(adj_t, "sparse_sizes"):
        shape = tuple(map(int, adj_t.sparse_sizes()))
        row, column, values = adj_t.coo()
    elif hasattr(adj_t, "layout") and str(adj_t.layout).startswith("torch.sparse"):
        entries = adj_t.detach().cpu().to_sparse_coo().coalesce()
        (row, column), values = entries.indices()[:2], entries.values()
        shape = tuple(adj_t.shape[:2])
    else:
        raise DataError(f"adj_t is a {type(adj_t).__name__}: pass a SparseTensor or a sparse tensor of torch")
    if shape[0] != shape[1]:
        raise DataError(f"adj_t has shape {shape}: an adjacency matrix is square")
    if values is not None:
        values = to_numpy(values, "adj_t")
        if values.ndim != 1:
            raise DataError(f"adj_t has {values.shape[1:]} numbers for each arc: pass one, or Graph.from_edge_index")
    return np.stack([to_integers(column, "adj_t"), to_integers(row, "adj_t")]), values, shape[0]


def to_pyg(graph: Graph) -> Any:
    """The ``graph`` as a ``torch_geometric.data.Data``; see ``Graph.to_pyg``.

    Raises:
        UnsupportedError: torch_geometric is not installed.
    """
    try:
        from torch_geometric.data import Data
    except ImportError as error:
        raise UnsupportedError("torch_geometric is not installed: run pip install torch_geometric") from error
    import torch

    target, source = graph.adjacency(bool).tocoo().coords
    fields = {"edge_index": torch.from_numpy(np.stack([source, target]).astype(np.int64))}
    arrays: dict[str, Any] = {"edge_weight": graph.weight}
    if isinstance(graph.features, np.ndarray):
        arrays["x"] = graph.features if graph.num_features else None
    else:
        indptr, indices, data = (torch.tensor(getattr(graph.features, part)) for part in ("indptr", "indices", "data"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls its sparse tensors a beta
            fields["x"] = torch.sparse_csr_tensor(indptr, indices, data, graph.features.shape, check_invariants=True)
    if is_labelled(graph.labels).any():
        arrays["y"] = graph.labels if graph.labels.dtype.kind == "f" else graph.labels.astype(np.int64)
    masks = {name: getattr(graph, name) for name in MASKS}
    arrays |= masks if any(mask.any() for mask in masks.values()) else {}
    for name, array in arrays.items():
        if array is not None:
            fields[name] = torch.tensor(array)  # a copy: torch knows no arrays that are read-only
    return Data(**fields, num_nodes=graph.num_nodes)
