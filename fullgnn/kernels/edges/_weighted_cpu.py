"""The compiled loops of :mod:`fullgnn.kernels.edges.weighted`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import functools

import numpy as np
from torch import Tensor

from fullgnn.kernels.edges._rows_cpu import RowLoop, over_rows
from fullgnn.kernels.edges._vectors_cpu import Heads, compiled, head_sums, multiply, spread
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.vectors import (
    add,
    add_rounding_errors,
    load,
    prefetch,
    rounding_error,
    store,
    zeros,
)

LOOKAHEAD = 16  # edges
CHAIN_EDGES = 128  # edges that are added one after the other; errors of the sum of chains are summed as well


NO_PLACES = np.empty(0, np.int32)


def add_weighted(edges: LocalCSR, places: Tensor | None, values: Tensor, x: Tensor, out: Tensor) -> None:
    """See :func:`fullgnn.kernels.edges.weighted._weighted_sum`; the rows of ``x`` are contiguous, and so is
    ``values``."""
    num_heads, size = values.shape[1], x.element_size()
    loop = weighted_sum_loop(8 * size, num_heads, x.shape[1] // num_heads)
    moved = NO_PLACES if places is None else places.numpy()
    over_rows(loop, edges, moved, values, x, x.stride(0) * size, out)


def write_dots(csr: LocalCSR, of_targets: Tensor, of_sources: Tensor, out: Tensor) -> None:
    """See :func:`fullgnn.kernels.edges.weighted.edge_dots`, whose result is written to ``out``; the rows of
    ``of_sources`` are contiguous, and so is ``of_targets``."""
    num_heads, size = out.shape[1], out.element_size()
    loop = edge_dots_loop(8 * size, num_heads, of_sources.shape[1] // num_heads)
    over_rows(loop, csr, of_targets, of_sources, of_sources.stride(0) * size, out)


@functools.cache
def weighted_sum_loop(bits: int, num_heads: int, depth: int) -> RowLoop:
    """The loop that adds weighted rows of X to some rows of the output."""
    heads = Heads(bits, num_heads, depth)
    (lanes, num_vectors, last), size = heads.columns, heads.size
    row_bytes, slice_bytes, in_slice, num_slices = num_heads * size, heads.slice_bytes, heads.heads, heads.num_slices

    @compiled(bits, num_heads, depth)
    def weighted_sum(indptr, indices, first_row, stop_row, scratch, places, values, x, x_stride, out):
        """Add, to some rows of ``out``, the rows ``indices[e]`` of X, weighted head by head, for their edges e.

        Args:
            places: (E,) the row of ``values`` of each edge; (0,): the edge itself.
            values, x, out: addresses; all but ``x`` are contiguous.
            x_stride: row stride in bytes.
        """
        zero, num_edges = zeros(bits, lanes, num_vectors), len(indices)
        moved = len(places) > 0
        for row in range(first_row, stop_row):
            for part in range(num_slices):
                base, weights = x + part * slice_bytes, values + part * in_slice * size
                place = out + (row * num_slices + part) * slice_bytes
                total, missing = load(place, last, zero), zero
                start, end = np.intp(indptr[row]), np.intp(indptr[row + 1])
                while start < end:
                    chain = zero
                    stop = min(start + CHAIN_EDGES, end)
                    for edge in range(start, stop):
                        ahead = np.uint64(min(edge + LOOKAHEAD, num_edges - 1))
                        prefetch(base + np.intp(indices[ahead]) * x_stride, zero)
                        at = np.intp(places[np.uint64(edge)]) if moved else edge
                        weight = spread(weights + at * row_bytes, zero, in_slice, depth)
                        neighbour = load(base + np.intp(indices[np.uint64(edge)]) * x_stride, last, zero)
                        chain = add(chain, multiply(neighbour, weight))
                    missing = add(missing, rounding_error(total, chain))
                    total = add(total, chain)
                    start = stop
                store(place, last, add_rounding_errors(total, missing))

    return RowLoop(weighted_sum, bits, 0)


@functools.cache
def edge_dots_loop(bits: int, num_heads: int, depth: int) -> RowLoop:
    """The loop that computes the dot products of the two rows of each edge, head by head."""
    heads = Heads(bits, num_heads, depth)
    (lanes, num_vectors, last), size = heads.columns, heads.size
    last_sum = heads.layout(heads.heads)[2]
    row_bytes, slice_bytes, in_slice, num_slices = num_heads * size, heads.slice_bytes, heads.heads, heads.num_slices

    @compiled(bits, num_heads, depth)
    def edge_dots(indptr, indices, first_row, stop_row, scratch, grad_rows, x, x_stride, out):
        """Write, for the edges of some rows, the dot products of their row and of row ``indices[e]`` of X.

        Args:
            grad_rows, x, out: addresses; all but ``x`` are contiguous.
            x_stride: row stride in bytes.
        """
        zero, num_edges = zeros(bits, lanes, num_vectors), len(indices)
        for row in range(first_row, stop_row):
            for part in range(num_slices):
                base, place = x + part * slice_bytes, out + part * in_slice * size
                grad_row = load(grad_rows + (row * num_slices + part) * slice_bytes, last, zero)
                for edge in range(np.intp(indptr[row]), np.intp(indptr[row + 1])):
                    ahead = np.uint64(min(edge + LOOKAHEAD, num_edges - 1))
                    prefetch(base + np.intp(indices[ahead]) * x_stride, zero)
                    neighbour = load(base + np.intp(indices[np.uint64(edge)]) * x_stride, last, zero)
                    sums = head_sums(multiply(neighbour, grad_row), in_slice, depth)
                    store(place + edge * row_bytes, last_sum, sums)

    return RowLoop(edge_dots, bits, 0)
