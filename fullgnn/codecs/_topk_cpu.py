"""The compiled loops of :mod:`fullgnn.codecs.topk`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np

from fullgnn.kernels.support import _atomics_cpu
from fullgnn.kernels.support._atomics_cpu import prefetch_line
from fullgnn.kernels.support.aligned import LINE_BYTES
from fullgnn.kernels.support.vectors import compiled_with

compiled = compiled_with(_atomics_cpu)
"""``compiled`` for loops that call functions of these modules."""

GROUP = 256
"""Columns of a group: a position in it is one byte."""
AHEAD = 8  # so many rows ahead the codes are prefetched


@numba.njit(inline="always")
def _insert(values, positions, count, most, value, position):
    """Insert into a list of at most ``most``, descending, behind equal values; returns its length."""
    if count == most:
        if not value > values[most - 1]:
            return count
        place = most - 1
    else:
        place = count
        count += 1
    while place > 0 and value > values[place - 1]:
        values[place], positions[place] = values[place - 1], positions[place - 1]
        place -= 1
    values[place], positions[place] = value, position
    return count


@numba.njit(inline="always")
def _find(row, begin, end, k, top, top_place, low, low_place):
    """Find the positions of the k largest values of a group, and of the k smallest of the others.

    Args:
        top, low: (2 k,) memory for the values, those of ``low`` negated; top_place, low_place: (2 k,) for positions.
    """
    num_top, num_low = 0, 0
    for column in range(begin, end):
        value = row[column]
        num_top = _insert(top, top_place, num_top, k, value, column - begin)
        # At most k of the 2 k smallest are among the k largest, which are no candidates.
        num_low = _insert(low, low_place, num_low, 2 * k, -value, column - begin)
    kept = 0
    for i in range(num_low):
        taken = False
        for j in range(k):
            taken = taken or top_place[j] == low_place[i]
        if not taken and kept < k:
            low_place[kept] = low_place[i]
            kept += 1


@compiled()
def positions(features, counts, codes):
    """Write the positions of the largest and the smallest values of each group of each row.

    Args:
        features: (m, F) float32 or float64.
        counts: (groups,) int64, the k of each group.
        codes: (m, 2 sum(counts)) uint8, of each group the positions of its largest values, then of its smallest.
    """
    num_columns, most = features.shape[1], max(1, 2 * counts.max())
    top, low = np.empty(most, features.dtype), np.empty(most, features.dtype)
    top_place, low_place = np.empty(most, np.uint8), np.empty(most, np.uint8)
    for i in range(len(features)):
        first = 0
        for group in range(len(counts)):
            k, begin = counts[group], GROUP * group
            if k == 0:
                continue
            _find(features[i], begin, min(begin + GROUP, num_columns), k, top, top_place, low, low_place)
            for j in range(k):
                codes[i, first + j] = top_place[j]
                codes[i, first + k + j] = low_place[j]
            first += 2 * k


@compiled()
def add_values(features, codes, columns, sums):
    """Add the values at the kept positions of all rows, in the order of the rows, to the (W,) float64 ``sums``.

    Args:
        columns: (W,) int64, the first column of the group of each code.
    """
    for i in range(len(features)):
        for j in range(len(columns)):
            sums[j] += features[i, columns[j] + codes[i, j]]


@compiled()
def decode(table, index, counts, codebook, out):
    """Write zeros, and the values of the codebook at the kept positions.

    Rows of the table that come later are prefetched, since they lie at random places. Unsigned indices spare the test
    for negative ones. Zeros are written group by group: for more than 2 KiB at a time, memset takes an instruction for
    whose end the values would wait, up to three times as long.

    Args:
        table: (n, W) uint8; index: (m,) int64, the rows of the table that are decoded.
        counts: (groups,) int64, the k of each group.
        codebook: (W,) of the dtype of ``out``; out: (m, F).
    """
    num_codes, address = table.shape[1], table.ctypes.data
    for i in range(len(index)):
        if i + AHEAD < len(index):
            later = address + index[i + AHEAD] * num_codes
            for byte in range(0, num_codes, LINE_BYTES):
                prefetch_line(later + byte)
            prefetch_line(later + num_codes - 1)
        row, code = out[i], table[index[i]]
        first, begin = np.uint64(0), np.uint64(0)
        for group in range(len(counts)):
            row[begin : begin + np.uint64(GROUP)] = 0
            last = first + np.uint64(2 * counts[group])
            for j in range(first, last):
                row[begin + np.uint64(code[j])] = codebook[j]
            first, begin = last, begin + np.uint64(GROUP)
