"""The passes over the entries of a graph, whose results several findings use; each is made once."""

from dataclasses import dataclass

import numpy as np

from fullgnn.graph import Graph
from fullgnn.report.inspection.labels import classes_of

_OUT = np.uint64(0x9E3779B97F4A7C15)  # an odd number: no bits are lost


@dataclass(frozen=True, eq=False)
class Passes:
    """What two passes over the entries have counted."""

    graph: Graph
    symmetric: bool
    self_loops: int
    mutual: int  # entries off the diagonal whose reverse is an entry too
    out_degree: np.ndarray  # (num_nodes,) int
    hashes: np.ndarray  # (num_nodes, 2) uint64, of the in- and out-neighbours of each training and test node
    equal_arcs: tuple[int, int]  # off the diagonal: between two nodes with a class, and those of equal classes
    of_class: np.ndarray  # (2, num_classes) int64, of these the ones into and out of each class
    of_nodes: np.ndarray  # (2,) the sum of the nodes' shares of equal neighbours, and the number of these nodes

    @classmethod
    def over(cls, graph: Graph) -> "Passes":
        """Pass over the entries of ``graph``: once if it is symmetric, or else twice."""
        from fullgnn.report.inspection._passes_cpu import (  # imported here, since it imports numba
            read_columns,
            read_rows,
        )

        wanted = graph.train_mask | graph.test_mask
        if not (graph.train_mask.any() and graph.test_mask.any()):
            wanted = np.zeros_like(wanted)  # no node to compare with
        labels, num_classes = classes_of(graph)
        hashes, sums, of_class, of_nodes = read_rows(graph.indptr, graph.indices, wanted, labels, num_classes)
        loops, labelled, equal = sums.tolist()
        if graph.is_symmetric:
            out_degree, mutual = np.diff(graph.indptr), graph.num_edges - loops
        else:
            out_degree, out_hashes, mutual = read_columns(graph.indptr, graph.indices, wanted)
            out_hashes *= _OUT  # so that in- and out-neighbours that change places are others
            hashes += out_hashes
        counted = loops, mutual, out_degree, hashes, (labelled, equal), of_class, of_nodes
        return cls(graph, graph.is_symmetric, *counted)
