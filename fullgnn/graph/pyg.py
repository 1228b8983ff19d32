"""Read a ``torch_geometric.data.Data`` by its attributes, without importing torch_geometric, and write one."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from fullgnn.errors import DataError, UnsupportedError
from fullgnn.graph.checks import to_array, to_integers, to_numpy
from fullgnn.graph.labels import is_labelled
from fullgnn.graph.masks import MASKS, chosen_split, has_columns

if TYPE_CHECKING:
    from fullgnn.graph.graph import Graph


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
    if getattr(weight, "ndim", 1) == 2 and weight.shape[1] == 1:
        weight = weight.reshape(-1)
    masks = {name: getattr(data, name, None) for name in MASKS}
    if split is not None or has_columns(masks.values()):
        num_nodes = len(features) if features is not None else int(num_nodes or 0)
        masks = chosen_split(masks, split, num_nodes, "Graph.from_pyg(data, split=0), or dataset.split=0 of a run")
    return dict(
        edge_index=edge_index,
        features=features,
        labels=getattr(data, "y", None),
        num_nodes=num_nodes if features is None else None,
        edge_weight=weight,
        remarks=remarks,
        **masks,
    )


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
