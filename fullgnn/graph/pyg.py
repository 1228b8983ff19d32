"""Read a ``torch_geometric.data.Data`` by its attributes: torch_geometric is not imported."""

import logging
from typing import Any

from fullgnn.errors import DataError

log = logging.getLogger(__name__)

MASKS = ("train_mask", "val_mask", "test_mask")


def is_pyg_data(value: Any) -> bool:
    """Whether ``value`` has the attributes of a PyTorch Geometric ``Data`` or ``HeteroData``."""
    return hasattr(value, "edge_index") or hasattr(value, "edge_types")


def pyg_fields(data: Any) -> dict[str, Any]:
    """The arguments of ``Graph.from_edge_index`` that ``data`` holds; see ``Graph.from_pyg``.

    Raises:
        DataError: ``data`` has no ``edge_index``.
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
    return dict(
        edge_index=edge_index,
        features=features,
        labels=getattr(data, "y", None),
        num_nodes=getattr(data, "num_nodes", None) if features is None else None,
        edge_weight=_edge_weight(data),
        **{name: getattr(data, name, None) for name in MASKS},
    )


def _edge_weight(data: Any) -> Any:
    """One weight an edge: ``edge_weight``, or else an ``edge_attr`` of one column; None if there is neither."""
    weight, attributes = getattr(data, "edge_weight", None), getattr(data, "edge_attr", None)
    if weight is not None or attributes is None:
        return weight
    shape = tuple(attributes.shape)
    if len(shape) == 1 or shape[1:] == (1,):
        return attributes.reshape(-1)
    log.warning("edge_attr has shape %s, and a Graph has one weight an edge: edge_attr is not read", shape)
    return None
