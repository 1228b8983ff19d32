"""The compiled loops of :mod:`fullgnn.kernels.edges.reduce`. Importing this module imports numba.

Messages are read once, one after the other, so that memory bounds these loops; they are compiled once per dtype.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np

from fullgnn.kernels.support.vectors import compiled

CHAIN_EDGES = 128  # edges that are added one after the other: the error of a sum grows with their number


@compiled()
def add_messages(indptr, indices, first_row, stop_row, messages, out):
    """Add the (E, F) ``messages`` of the edges of some rows to ``out``.

    Edges form chains. When chains are added, the rounding errors are summed separately and added at the end, as in
    ``_blocked_cpu.py``.
    """
    width = messages.shape[1]
    chain, missing = np.empty(width, messages.dtype), np.empty(width, messages.dtype)
    for row in range(first_row, stop_row):
        total = out[row]
        missing[:] = 0
        for first in range(indptr[row], indptr[row + 1], CHAIN_EDGES):
            chain[:] = messages[first]
            for edge in range(first + 1, min(first + CHAIN_EDGES, indptr[row + 1])):
                message = messages[edge]
                for column in range(width):
                    chain[column] += message[column]
            for column in range(width):
                old, added = total[column], chain[column]
                total[column] = old + added
                of_added = total[column] - old
                missing[column] += (old - (total[column] - of_added)) + (added - of_added)
        for column in range(width):
            if missing[column] == missing[column]:  # it is nan after an addition to an infinity
                total[column] += missing[column]


@compiled()
def add_largest(indptr, indices, first_row, stop_row, messages, source_id, value, winner):
    """Update the largest messages of some rows."""
    width = messages.shape[1]
    for row in range(first_row, stop_row):
        best, best_id = value[row], winner[row]
        for edge in range(indptr[row], indptr[row + 1]):
            message, sender = messages[edge], source_id[indices[edge]]
            for column in range(width):
                number, top = message[column], best[column]
                lower = sender < best_id[column]
                is_nan, was_nan = number != number, top != top
                wins = number > top or (number == top and lower) or (is_nan and (not was_nan or lower))
                best[column] = number if wins else top
                best_id[column] = sender if wins else best_id[column]


@compiled()
def largest_gradient(indptr, indices, first_row, stop_row, source_id, winner, grad, out):
    """Write the (E, F) gradients of the messages of some rows: that of the target where the message won, else 0."""
    width = grad.shape[1]
    zero = grad.dtype.type(0)
    for row in range(first_row, stop_row):
        best_id, of_row = winner[row], grad[row]
        for edge in range(indptr[row], indptr[row + 1]):
            sender, of_edge = source_id[indices[edge]], out[edge]
            for column in range(width):
                of_edge[column] = of_row[column] if best_id[column] == sender else zero
