"""A ``Graph`` as named arrays, as which it is hashed, kept in a cache and read again."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from fullgnn.graph import remarks
from fullgnn.graph.graph import Graph
from fullgnn.graph.node_names import names_from_arrays, names_to_arrays
from fullgnn.graph.sparse_features import features_from_arrays, features_to_arrays

_OTHERWISE = ("name", "remarks", "node_names", "features")  # fields that are not one array each


def graph_to_arrays(graph: Graph) -> dict[str, np.ndarray]:
    """All that the ``graph`` has, but for its name, as arrays of plain values; what is None is left out."""
    values = {field.name: getattr(graph, field.name) for field in fields(graph) if field.name not in _OTHERWISE}
    arrays = {name: np.asarray(value) for name, value in values.items() if value is not None}
    arrays |= features_to_arrays(graph.features)
    return arrays | names_to_arrays(graph.node_names) | remarks.to_arrays(graph.remarks)


def graph_from_arrays(arrays: Mapping[str, Any], name: str) -> Graph:
    """The graph of which ``graph_to_arrays`` has made ``arrays``.

    Raises:
        DataError: the arrays are no graph.
    """
    values = {field.name: arrays[field.name] for field in fields(Graph) if field.name in arrays}
    values |= {"features": features_from_arrays(arrays), "node_names": names_from_arrays(arrays)}
    values |= {"name": name, "remarks": remarks.from_arrays(arrays)}
    return Graph(**values)
