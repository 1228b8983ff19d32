"""The compiled loops of :mod:`fullgnn.codecs.product`. Importing this module imports numba.

A distance is the sum of the squared differences of the columns, added in float32 in the order of the columns, with no
fused operations. The loops run over centroids, or over rows, in vectors: neither the number of threads nor the width of
a vector changes a bit.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np

from fullgnn.kernels.support.vectors import compiled

CENTROIDS = 256  # of a group of columns: a code is one byte
CHUNK_ROWS = 64  # rows that are encoded while the centroids of a group are in the L1 cache
BLOCK_ROWS = 1024  # rows whose distances to one centroid are in the L1 cache


@numba.njit(nogil=True)
def nearest(row, centroids, distances):
    """The lowest number of those of the ``centroids``, (w, CENTROIDS), that are nearest to ``row``, (w,); ``distances``
    is (CENTROIDS,) float32 memory."""
    distances[:] = 0
    for column in range(len(row)):
        number, of_column = row[column], centroids[column]
        for k in range(CENTROIDS):
            difference = number - of_column[k]
            distances[k] += difference * difference
    bits = distances.view(np.int32)  # in the order of the distances, since these are not negative
    least = bits[0]
    for k in range(CENTROIDS):
        least = min(least, bits[k])
    lowest = np.int32(CENTROIDS)
    for k in range(CENTROIDS):
        lowest = min(lowest, np.int32(k) if bits[k] == least else np.int32(CENTROIDS))
    return lowest


@compiled()
def encode(rows, centroids, columns, codes):
    """Write the number of the nearest centroid of (F, CENTROIDS) to the (m, num_groups) ``codes``, for each of the
    (m, F) rows and each group of ``columns`` columns."""
    distances = np.empty(CENTROIDS, np.float32)
    for begin in range(0, len(rows), CHUNK_ROWS):
        for group in range(codes.shape[1]):
            first, stop = group * columns, min((group + 1) * columns, rows.shape[1])
            for i in range(begin, min(begin + CHUNK_ROWS, len(rows))):
                codes[i, group] = nearest(rows[i, first:stop], centroids[first:stop], distances)


@compiled()
def first_centroids(columns, random, centroids):
    """Choose the centroids among the nodes by k-means++: each one with a probability proportional to its squared
    distance to the nearest one before. Of too few distinct nodes, the other centroids repeat the first.

    Args:
        columns: (w, n) float32, n > 0: a row for each column, a column for each node.
        random: (CENTROIDS,) uniform numbers of [0, 1).
        centroids: (w, CENTROIDS), written.
    """
    num_columns, num_nodes = columns.shape
    nearest_yet = np.full(num_nodes, np.inf, np.float32)
    distances = np.empty(BLOCK_ROWS, np.float32)
    node = int(random[0] * num_nodes)
    centroids[:, :] = columns[:, node].copy().reshape(num_columns, 1)
    for k in range(1, CENTROIDS):
        total = 0.0
        for begin in range(0, num_nodes, BLOCK_ROWS):
            of_block = nearest_yet[begin : begin + BLOCK_ROWS]
            distances[:] = 0
            for column in range(num_columns):
                numbers, centre = columns[column, begin : begin + BLOCK_ROWS], columns[column, node]
                for i in range(len(of_block)):
                    difference = numbers[i] - centre
                    distances[i] += difference * difference
            for i in range(len(of_block)):
                of_block[i] = min(of_block[i], distances[i])
                total += of_block[i]
        if total == 0:
            return
        threshold, below = random[k] * total, 0.0
        for i in range(num_nodes):
            if nearest_yet[i] > 0:
                node = i
                below += nearest_yet[i]
                if below > threshold:
                    break
        centroids[:, k] = columns[:, node]


@compiled()
def refine(rows, centroids):
    """Replace each centroid by the mean of the (n, w) rows that are nearest to it, as Lloyd does. A centroid that is
    the nearest of no row stays. Sums are float64, in the order of the rows."""
    distances = np.empty(CENTROIDS, np.float32)
    sums, counts = np.zeros((CENTROIDS, rows.shape[1])), np.zeros(CENTROIDS, np.int64)
    for i in range(len(rows)):
        k = nearest(rows[i], centroids, distances)
        counts[k] += 1
        for column in range(rows.shape[1]):
            sums[k, column] += rows[i, column]
    for k in range(CENTROIDS):
        if counts[k] > 0:
            centroids[:, k] = sums[k] / counts[k]


@compiled()
def decode(table, codes, index, out):
    """Write the decoded rows ``index``, (m,), of ``codes``, (n, num_groups), to ``out``, (m, F).

    Args:
        table: (num_groups, CENTROIDS, w) centroids; of the last group, some columns may not be used.
    """
    width = table.shape[2]
    for i in range(len(index)):
        for group in range(len(table)):
            first, centroid = group * width, table[group, codes[index[i], group]]
            for column in range(min(width, out.shape[1] - first)):
                out[i, first + column] = centroid[column]
