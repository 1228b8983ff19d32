"""The graph, its normalisation, and the datasets that produce a graph."""

from fullgnn.graph.datasets import load_dataset
from fullgnn.graph.generate import GeneratedGraph, hierarchical_sbm, rmat
from fullgnn.graph.graph import Graph
from fullgnn.graph.normalize import (
    NormalizedAdjacency,
    adjacency_operator,
    is_symmetric,
    normalized_adjacency,
    row_sums,
)

__all__ = [
    "GeneratedGraph",
    "Graph",
    "NormalizedAdjacency",
    "adjacency_operator",
    "hierarchical_sbm",
    "is_symmetric",
    "load_dataset",
    "normalized_adjacency",
    "rmat",
    "row_sums",
]
