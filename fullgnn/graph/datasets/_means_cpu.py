"""Means over neighbours of rows in float16, by compiled loops. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np

from fullgnn.kernels.support.process import PIECES, even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled

_SCALE = np.float32(2.0**112)
"""Between the exponents of float32 and float16, which are biased by 127 and 15."""


def neighbor_means(indptr: np.ndarray, indices: np.ndarray, nodes: slice, rows: np.ndarray, first: int) -> np.ndarray:
    """Mean of the rows of the neighbours of each node, summed in float64 in the order of the neighbours.

    Args:
        indptr: (num_nodes + 1,) int64; indices: (num_edges,) int32, GLOBAL.
        nodes: GLOBAL ids of the nodes.
        rows: (m, F) float16, finite, C-contiguous: those of the nodes from ``first`` on. A neighbour that has no row
            does not count.

    Returns:
        (number of nodes, F) float16; zeros for a node of which no neighbour has a row.
    """
    count = nodes.stop - nodes.start
    means = np.empty((count, rows.shape[1]), np.float16)
    bits = rows.view(np.uint16)

    def mean(piece: slice) -> None:
        sums = np.zeros((piece.stop - piece.start, rows.shape[1]))
        _add_means(indptr, indices, nodes.start + piece.start, bits, first, sums)
        means[piece] = sums

    parallel_for(mean, even_slices(count, min(count, PIECES)))
    return means


@compiled()
def _add_means(indptr, indices, begin, bits, first, sums):
    num_rows, width = bits.shape
    for node in range(len(sums)):
        count = 0
        for edge in range(indptr[begin + node], indptr[begin + node + 1]):
            row = indices[edge] - first
            if row >= 0 and row < num_rows:
                count += 1
                for column in range(width):
                    sums[node, column] += _float32(bits[row, column])
        if count > 1:
            for column in range(width):
                sums[node, column] /= count


@numba.njit(nogil=True)
def _float32(half):
    """The finite float16 with these bits: sign, exponent and fraction go to their places in a float32."""
    word = np.uint32(half)
    moved = (word & np.uint32(0x8000)) << np.uint32(16) | (word & np.uint32(0x7FFF)) << np.uint32(13)
    return np.uint32(moved).view(np.float32) * _SCALE
