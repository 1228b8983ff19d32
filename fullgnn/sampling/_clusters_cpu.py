"""The compiled loop of :mod:`fullgnn.sampling.clusters`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from fullgnn.kernels.support.vectors import compiled


@compiled()
def induce(indptr, indices, sources, group_of, local, new_indptr, new_indices, places, own):
    """Write the edges whose two nodes are in one group, row after row; returns how many there are.

    Args:
        sources: (m,) int64 nodes, ascending.
        group_of: (num_nodes,) int32; -1 for nodes that are not among the sources.
        local: (num_nodes,) int32, the place of each source among the sources.
        new_indptr, new_indices: the rows of the subgraph, written.
        places: of its edges in ``indices``, written.
        own: (m,) int64, the place of each source's edge to itself, written where there is one.
    """
    count = 0
    for i in range(len(sources)):
        v = sources[i]
        group = group_of[v]
        for place in range(indptr[v], indptr[v + 1]):
            u = indices[place]
            if group_of[u] == group:
                new_indices[count] = local[u]
                places[count] = place
                if u == v:
                    own[i] = place
                count += 1
        new_indptr[i + 1] = count
    return count
