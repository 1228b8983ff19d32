"""Connected components of a shrinking graph, without a copy of the remaining subgraph."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np

from fullgnn.kernels.support.vectors import compiled

UNLABELLED = np.iinfo(np.int32).max  # no component has this number


@compiled()
def label_components(indptr, indices, nodes, degree, component):
    """Number the connected components of the subgraph on ``nodes``, in the order of their smallest node.

    The search is breadth-first from each node that is not reached yet. It stops reading edges once every node with
    edges is reached, in a dense graph after a few rows, so that a round of SlashBurn costs O(nodes) there.

    Args:
        indptr, indices: symmetric CSR pattern of the whole graph.
        nodes: ascending ids of the subgraph.
        degree: (n,) degrees inside the subgraph.
        component: (n,) negative for nodes outside the subgraph; written for those inside.
    """
    unreached = 0  # nodes with edges that have no label yet
    for node in nodes:
        component[node] = UNLABELLED
        unreached += degree[node] > 0
    queue = np.empty(nodes.size, nodes.dtype)
    num_components = 0
    for root in nodes:
        if component[root] != UNLABELLED:
            continue
        component[root] = num_components
        unreached -= degree[root] > 0
        queue[0], head, tail = root, 0, 1
        while head < tail and unreached > 0:
            node = queue[head]
            head += 1
            for entry in range(indptr[node], indptr[node + 1]):
                neighbour = indices[entry]
                if component[neighbour] == UNLABELLED:
                    component[neighbour] = num_components
                    unreached -= 1
                    queue[tail] = neighbour
                    tail += 1
        num_components += 1
