"""The compiled loops of :mod:`fullgnn.kernels.edges.reduce`. Importing this module imports numba.

Messages are read once, one after the other, so that memory bounds these loops; they are compiled once per dtype.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np
from torch import Tensor

from fullgnn.kernels.edges._rows_cpu import over_rows_of_arrays
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.vectors import compiled

CHAIN_EDGES = 128  # edges that are added one after the other: the error of a sum grows with their number


def add_messages(csr: LocalCSR, messages: Tensor, out: Tensor) -> None:
    """See :func:`fullgnn.kernels.edges.reduce.add_messages`; the tensors are contiguous."""
    over_rows_of_arrays(sum_messages, csr, messages.detach().numpy(), out.detach().numpy())


def add_largest(csr: LocalCSR, messages: Tensor, source_id: Tensor, state: MaxState) -> None:
    """See :func:`fullgnn.kernels.edges.reduce.add_largest`; the tensors are contiguous."""
    update_state(csr, messages.new_empty(0), messages.detach(), True, source_id, state)


def update_state(
    csr: LocalCSR, edge_weight: Tensor, x: Tensor, of_edges: bool, source_id: Tensor, state: MaxState
) -> None:
    """Call ``update_largest`` for all rows."""
    arrays = (edge_weight.numpy(), x.numpy(), of_edges, source_id.numpy(), state.value.numpy(), state.winner.numpy())
    over_rows_of_arrays(update_largest, csr, *arrays)


def largest_backward(csr: LocalCSR, source_id: Tensor, winner: Tensor, grad: Tensor, out: Tensor) -> None:
    """See :func:`fullgnn.kernels.edges.reduce.largest_backward`; the tensors are contiguous."""
    arrays = [tensor.numpy() for tensor in (source_id, winner, grad, out)]
    over_rows_of_arrays(largest_gradient, csr, *arrays)


@compiled()
def sum_messages(indptr, indices, first_row, stop_row, messages, out):
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
def update_largest(indptr, indices, first_row, stop_row, edge_weight, x, of_edges, source_id, value, winner):
    """Update the largest messages of some rows; a nan exceeds every number.

    Args:
        edge_weight: (E,), by which the rows of ``x`` are multiplied; (0,): all 1.
        x: (m, F), whose rows the sources send; or, ``of_edges``, (E, F) messages.
    """
    width, weighted, no_weight = x.shape[1], len(edge_weight) > 0, x.dtype.type(1)
    for row in range(first_row, stop_row):
        best, best_id = value[row], winner[row]
        for edge in range(indptr[row], indptr[row + 1]):
            source = indices[edge]
            message, sender = x[edge if of_edges else source], source_id[source]
            weight = edge_weight[edge] if weighted else no_weight
            for column in range(width):
                number, top = message[column] * weight, best[column]
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
