"""Read node property prediction datasets of the package ``ogb`` by what they hold: ``ogb`` is not imported."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import to_array, to_numpy
from fullgnn.graph.convert import dgl_fields, is_dgl_graph, is_ogb, is_pyg_data, pyg_fields
from fullgnn.graph.labels import MAX_CLASSES
from fullgnn.graph.masks import MASK_OF_PART, masks_of_ids, without_unlabelled

_CURE = "pass a NodePropPredDataset, or its pair dataset[0]"


def ogb_fields(dataset: Any, edge_weight: int | None) -> dict[str, Any]:
    """The arguments of ``Graph.from_edge_index`` that ``dataset`` holds; see ``Graph.from_ogb``.

    Raises:
        DataError: ``dataset`` is something else.
    """
    if not is_ogb(dataset):
        raise DataError(f"{type(dataset).__name__} is no dataset of OGB: {_CURE}")
    split, first = None, dataset
    if not isinstance(dataset, tuple):
        split, first = dataset.get_idx_split(), dataset[0]
    first, kind, noted = _of_one_kind(first)
    if is_pyg_data(first):  # of PygNodePropPredDataset
        fields = pyg_fields(first, None)
        of_edges, labels = getattr(first, "edge_attr", None), fields["labels"]
    elif isinstance(first, tuple) and len(first) == 2 and is_dgl_graph(first[0]):  # of DglNodePropPredDataset
        fields = dgl_fields(first[0], None, "feat", "label")
        of_edges, labels = first[0].edata.get("feat"), first[1]
    elif isinstance(first, tuple) and len(first) == 2 and isinstance(first[0], Mapping):
        graph, labels = first
        missing = {"edge_index", "num_nodes"} - graph.keys()
        if missing:
            raise DataError(f"the graph of OGB has no {min(missing)!r}: {_CURE}")
        fields = {"edge_index": graph["edge_index"], "features": graph.get("node_feat")}
        fields["num_nodes"] = int(graph["num_nodes"])
        of_edges = graph.get("edge_feat")
    else:
        raise DataError(f"{type(first).__name__} is no graph of OGB with labels of nodes: {_CURE}")
    weight, remarks = _weight(of_edges, edge_weight)
    remarks |= noted
    fields |= {"edge_weight": weight, "labels": known_labels(to_numpy(labels, "labels"), "labels of OGB", _CURE)}
    if split is not None:
        of_kind = {
            part: split[part].get(kind, ()) if isinstance(split[part], Mapping) else split[part]
            for part in MASK_OF_PART
        }
        parts = {part: ("the split of OGB", ids) for part, ids in of_kind.items()}
        masks = masks_of_ids(parts, len(fields["labels"]), _CURE)
        masks, of_split = without_unlabelled(masks, fields["labels"])
        fields, remarks = fields | masks, remarks | of_split
    return fields | {"remarks": remarks}


def _of_one_kind(first: Any) -> tuple[Any, Any, dict[str, int]]:
    """``dataset[0]`` with nodes of the kind that has labels alone, this kind, and the remarks.

    Of nodes of several kinds, as in ogbn-mag, these and the arcs of the relation between them become a graph.

    Args:
        first: of nodes of one kind, it is returned as it is, and the kind is None.

    Raises:
        DataError: several kinds have labels, or not just one relation joins nodes of the kind that has them.
    """
    if hasattr(first, "edge_index_dict") and hasattr(first, "y_dict"):  # of PygNodePropPredDataset
        fields = {
            "node_feat_dict": getattr(first, "x_dict", {}),
            "edge_feat_dict": getattr(first, "edge_attr_dict", {}),
        }
        fields |= {"edge_index_dict": first.edge_index_dict, "num_nodes_dict": first.num_nodes_dict}
        graph, labels = fields, first.y_dict
    elif isinstance(first, tuple) and isinstance(first[0], Mapping) and "edge_index_dict" in first[0]:
        graph, labels = first
    else:
        return first, None, {}
    sizes, edges = graph.get("num_nodes_dict", {}), graph["edge_index_dict"]
    kinds = list(labels) if isinstance(labels, Mapping) else []
    within = [relation for relation in edges if (relation[0], relation[-1]) == (*kinds, *kinds)]
    if len(kinds) != 1 or len(within) != 1 or kinds[0] not in sizes:
        raise DataError(
            f"{len(kinds)} kinds of nodes have labels, and {len(within)} relations join nodes of such a kind, and a"
            " Graph has nodes of one kind and one relation: pass Graph.from_edge_index what it shall hold"
        )
    (kind,), (relation,) = kinds, within
    noted = {
        "other_relations": sum(edge_index.shape[1] for other, edge_index in edges.items() if other != relation),
        "other_kinds": sum(map(int, sizes.values())) - int(sizes[kind]),
    }
    of_kind = {
        "edge_index": edges[relation],
        "num_nodes": int(sizes[kind]),
        "node_feat": (graph.get("node_feat_dict") or {}).get(kind),
        "edge_feat": (graph.get("edge_feat_dict") or {}).get(relation),
    }
    return (of_kind, labels[kind]), kind, noted


def known_labels(values: np.ndarray, where: object, cure: str) -> np.ndarray:
    """Labels of OGB in the form that a ``Graph`` keeps: (num_nodes,) int64, or (num_nodes, c) int8; -1 where unknown.

    Args:
        values: (num_nodes, 1) classes, or (num_nodes, c) of 0 and 1; NaN where a label is not known.
        where, cure: begin and end the error.

    Raises:
        DataError: a value is no label.
    """
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not values.shape[1]:
        raise DataError(f"{where}: labels have the shape {values.shape}, and takes a row for each node: {cure}")
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, bool)
    most = 1 if values.shape[1] > 1 else MAX_CLASSES
    wrong = known & ~((values >= 0) & (values <= most) & (values == np.floor(values)))
    if wrong.any():
        node, column = np.argwhere(wrong)[0]
        takes = "0, 1" if most == 1 else "classes 0, 1, ..."
        raise DataError(
            f"{where}: label {column} of node {node} is {values[node, column]:g}, and {takes} or NaN belong there:"
            f" {cure}"
        )
    labels = np.full(values.shape, -1, np.int8 if values.shape[1] > 1 else np.int64)
    np.copyto(labels, values, where=known, casting="unsafe")
    return labels if values.shape[1] > 1 else labels[:, 0]


def _weight(of_edges: Any, column: int | None) -> tuple[np.ndarray | None, dict[str, int]]:
    """The weights, or None, and the remarks."""
    if of_edges is None and column is None:
        return None, {}
    features = np.empty((0, 0)) if of_edges is None else to_array(of_edges, "edge_feat")
    num_columns = features.shape[1] if features.ndim == 2 else 1
    if column is None:
        return None, {"unread_edge_features": num_columns}
    if not 0 <= column < num_columns:
        raise DataError(f"edge_weight is {column}, and the edges of the graph have {num_columns} numbers each")
    return features.reshape(len(features), num_columns)[:, column], {}
