"""The compiled loops of :mod:`fullgnn.sampling.rows`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from fullgnn.kernels.support.vectors import compiled


@compiled()
def with_self_loops(indptr, indices, target_index, new_indptr, new_indices, edge):
    """Put an edge to itself before the other edges of each target, in place of a sampled one.

    Args:
        edge: (new edges,) for each one its number before; -1 for an edge that is added.

    Returns:
        how many edges there are.
    """
    count = 0
    new_indptr[0] = 0
    for i in range(len(target_index)):
        own = target_index[i]
        new_indices[count], edge[count] = own, -1
        count += 1
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] != own:
                new_indices[count], edge[count] = indices[e], e
                count += 1
        new_indptr[i + 1] = count
    return count


@compiled()
def row_factors(graph_indptr, targets, indptr, factors):
    """Write for each of the ``targets`` the number of its edges in the graph over that in the sample."""
    for i in range(len(targets)):
        degree = graph_indptr[targets[i] + 1] - graph_indptr[targets[i]]
        factors[i] = degree / max(1, indptr[i + 1] - indptr[i])


@compiled()
def add_rows(target, index, rows):
    """Add the last columns of ``rows[i]`` to row ``index[i]`` of ``target``, for every i."""
    width = target.shape[1]
    for i in range(len(index)):
        sums, row = target[index[i]], rows[i, rows.shape[1] - width :]
        for column in range(width):
            sums[column] += row[column]


@compiled()
def entries(indptr, indices, edge, weights, factors, row_factor, row_scale, col_scale, values):
    """Write the entry of each edge: its weight, times its factor, times the scales of its row and column.

    Args:
        edge: (E,) number of each edge among ``weights`` and ``factors``; -1: weight and factor are 1. (0,): 0, 1, ...
        weights, factors: float64; (0,): all 1.
        row_factor, row_scale: (rows,) float64; (0,): all 1.
        col_scale: (columns,) float64; (0,): all 1.
    """
    for row in range(len(indptr) - 1):
        factor = row_factor[row] if len(row_factor) > 0 else 1.0
        scale = row_scale[row] if len(row_scale) > 0 else 1.0
        for e in range(indptr[row], indptr[row + 1]):
            value = scale if len(col_scale) == 0 else scale * col_scale[indices[e]]
            number = edge[e] if len(edge) > 0 else e
            if number >= 0:
                if len(weights) > 0:
                    value *= weights[number]
                value *= factors[number] if len(factors) > 0 else factor
            values[e] = value
