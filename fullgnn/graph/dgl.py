"""Read a DGLGraph by its attributes: dgl is not imported."""

from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import to_integers
from fullgnn.graph.masks import MASKS, chosen_split, has_columns


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
    if getattr(weight, "ndim", 1) == 2 and weight.shape[1] == 1:  # type: ignore[union-attr]
        weight = weight.reshape(-1)  # type: ignore[union-attr]
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
        edge_weight=weight,
        remarks={"unread_edge_data": len(of_edges) if edge_weight is None else 0},
        **masks,
    )
