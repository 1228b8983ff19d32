"""Degrees, components, and entries that are not plain edges."""

import numpy as np

from fullgnn.graph import Graph
from fullgnn.report.inspection.findings import Degrees, Topology
from fullgnn.report.inspection.passes import Passes

LARGEST = 5
"""How many components are named by their size."""


def structure_of(graph: Graph, passes: Passes) -> Topology:
    """The ``Topology`` of ``graph``."""
    from fullgnn.report.inspection._passes_cpu import component_sizes  # imported here, since it imports numba

    joined = (graph.indptr[1:] > graph.indptr[:-1]) | (passes.out_degree > 0)
    num_joined = int(np.count_nonzero(joined))
    sizes = component_sizes(graph.indptr, graph.indices, passes.symmetric, num_joined)
    largest = np.sort(np.partition(sizes, max(0, len(sizes) - LARGEST))[-LARGEST:])[::-1]
    weight = graph.weight
    return Topology(
        in_degrees=degrees(np.diff(graph.indptr)),
        out_degrees=degrees(passes.out_degree),
        symmetric=passes.symmetric,
        self_loops=passes.self_loops,
        isolated_nodes=graph.num_nodes - num_joined,
        only_self_loop=_num_only_self_loop(graph, passes),
        one_way_arcs=graph.num_edges - passes.self_loops - passes.mutual,
        num_components=len(sizes),
        largest_components=tuple(largest.tolist()),
        weights=None if weight is None else (float(weight.min()), float(weight.max())),
        negative_weights=0 if weight is None else int(np.count_nonzero(weight < 0)),
    )


def _num_only_self_loop(graph: Graph, passes: Passes) -> int:
    alone = np.flatnonzero((np.diff(graph.indptr) == 1) & (passes.out_degree == 1))
    return int(np.count_nonzero(graph.indices[graph.indptr[alone]] == alone))


def degrees(degree: np.ndarray) -> Degrees:
    """The distribution of (num_nodes,) integers, by counting: nothing is sorted, and every percentile is exact."""
    counts = np.bincount(degree)
    below = np.cumsum(counts)  # nodes of each degree or less
    p50, p90, p99 = (int(np.searchsorted(below, np.ceil(share * below[-1]))) for share in (0.5, 0.9, 0.99))
    starts = np.concatenate([[0], 1 << np.arange(max(1, int(len(counts) - 1).bit_length()))])
    histogram = np.add.reduceat(counts, starts[starts < len(counts)])
    return Degrees(
        min=int(np.flatnonzero(counts)[0]),
        median=p50,
        p90=p90,
        p99=p99,
        max=len(counts) - 1,
        mean=float(np.arange(len(counts)) @ counts / below[-1]),
        zero_share=float(counts[0] / below[-1]),
        histogram=tuple(histogram.tolist()),
    )
