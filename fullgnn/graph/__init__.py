"""The graph, its normalisation, and the datasets that produce a graph."""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.graph.datasets import check_dataset, dataset_files, dataset_identity, dataset_lacks, load_dataset
    from fullgnn.graph.generate import GeneratedGraph, hierarchical_sbm, rmat
    from fullgnn.graph.graph import Graph
    from fullgnn.graph.normalize import (
        EdgeSet,
        Propagation,
        check_entries,
        normalized_entries,
        row_sums,
        with_self_loops,
    )

__all__ = [
    "EdgeSet",
    "GeneratedGraph",
    "Graph",
    "Propagation",
    "check_dataset",
    "check_entries",
    "dataset_files",
    "dataset_identity",
    "dataset_lacks",
    "hierarchical_sbm",
    "load_dataset",
    "normalized_entries",
    "rmat",
    "row_sums",
    "with_self_loops",
]

import_on_use(__name__)
