"""The compiled loops of :mod:`fullgnn.sampling.layers`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np

from fullgnn.kernels.dropout import _philox_cpu
from fullgnn.kernels.dropout._philox_cpu import _philox
from fullgnn.kernels.support.vectors import compiled_with

compiled = compiled_with(_philox_cpu)
"""``compiled`` for loops that call functions of these modules."""


@compiled()
def candidates(indptr, indices, targets, arcs, nodes):
    """Count the arcs of each node that a target reads; returns how many such nodes there are.

    Args:
        targets: (m,) int64.
        arcs: (num_nodes,) int32 scratch, 0 at first, to which the arcs are added.
        nodes: memory for the nodes, in the order in which they are found.
    """
    count = 0
    for i in range(len(targets)):
        for place in range(indptr[targets[i]], indptr[targets[i] + 1]):
            u = indices[place]
            if arcs[u] == 0:
                nodes[count] = u
                count += 1
            arcs[u] += 1
    return count


@compiled()
def draw(nodes, probability, hop, epoch, key_0, key_1, kept):
    """Write whether each of the (n,) ``nodes`` is kept, by the first 53 bits of its words.

    Args:
        hop, epoch, key_0, key_1: uint64, with the node the counter and the key of Philox.
    """
    scale = 1.0 / 9007199254740992.0  # 2^-53: a power of two, so that the product is exact
    for i in range(len(nodes)):
        word_0, word_1, _, _ = _philox(np.uint64(nodes[i]), np.uint64(0), hop, epoch, key_0, key_1)
        bits = (word_0 << np.uint64(21)) ^ (word_1 >> np.uint64(11))
        kept[i] = np.float64(bits) * scale < probability[i]


@compiled()
def kept_edges(indptr, indices, targets, factor, local, hop_indptr, places, factors, sources):
    """Write the edges from kept nodes to ``targets``, row after row.

    Args:
        targets: (m,) int64.
        factor: (num_nodes,) float64; 0: the node is not kept.
        local: (num_nodes,) int32 scratch, -1 at first; 0 afterwards where a node is a source.
        hop_indptr: (m + 1,) int32, written.
        places, factors: memory for the place of each edge in ``indices``, and for its factor.
        sources: int64 memory for the targets and the other nodes that have an edge.

    Returns:
        how many edges and how many sources there are.
    """
    count, num_sources = 0, len(targets)
    for i in range(len(targets)):
        local[targets[i]] = 0
        sources[i] = targets[i]
    hop_indptr[0] = 0
    for i in range(len(targets)):
        for place in range(indptr[targets[i]], indptr[targets[i] + 1]):
            u = indices[place]
            if factor[u] > 0:
                places[count] = place
                factors[count] = factor[u]
                count += 1
                if local[u] < 0:
                    local[u] = 0
                    sources[num_sources] = u
                    num_sources += 1
        hop_indptr[i + 1] = count
    return count, num_sources
