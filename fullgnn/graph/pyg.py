"""Read a ``torch_geometric.data.Data`` by its attributes: torch_geometric is not imported."""

from typing import Any

from fullgnn.errors import DataError
from fullgnn.graph.checks import to_array, to_numpy
from fullgnn.graph.masks import MASKS, column_of_masks


def is_pyg_data(value: Any) -> bool:
    """Whether ``value`` has the attributes of a PyTorch Geometric ``Data`` or ``HeteroData``."""
    return hasattr(value, "edge_index") or hasattr(value, "edge_types")


def pyg_fields(data: Any, edge_weight: Any = "auto", split: int | None = None) -> dict[str, Any]:
    """The arguments of ``Graph.from_edge_index`` that ``data`` holds; see ``Graph.from_pyg``.

    Raises:
        DataError: ``data`` has no ``edge_index``, an ``edge_attr`` that may or may not be weights, or masks of several
            splits of which ``split`` is none.
    """
    if hasattr(data, "edge_types"):
        raise DataError("a HeteroData has nodes of several types, and a Graph has one: pass data.to_homogeneous()")
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise DataError(
            "the PyTorch Geometric Data has no edge_index: set it, or leave out the transform (ToSparseTensor) that"
            " removed it"
        )
    features = getattr(data, "x", None)
    weight, remarks = _weights(data) if isinstance(edge_weight, str) and edge_weight == "auto" else (edge_weight, {})
    if getattr(weight, "ndim", 1) == 2 and weight.shape[1] == 1:
        weight = weight.reshape(-1)
    masks = {name: getattr(data, name, None) for name in MASKS}
    if split is not None or any(getattr(mask, "ndim", 1) == 2 for mask in masks.values()):
        num_nodes = len(features) if features is not None else int(data.num_nodes)
        masks = column_of_masks(masks, split, num_nodes, "Graph.from_pyg(data, split=0)")
    return dict(
        edge_index=edge_index,
        features=features,
        labels=getattr(data, "y", None),
        num_nodes=getattr(data, "num_nodes", None) if features is None else None,
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
    attributes = to_numpy(attributes, "edge_attr")
    if attributes.dtype.kind in "biu" and attributes.size:
        raise DataError(
            f"edge_attr holds {attributes.dtype} numbers, which may be relations, times or weights: pass"
            " Graph.from_pyg(data, edge_weight=None) for a graph without weights, or"
            " Graph.from_pyg(data, edge_weight=data.edge_attr) if they are its weights"
        )
    return attributes.reshape(-1), {"edge_attr_weights": attributes.size}
