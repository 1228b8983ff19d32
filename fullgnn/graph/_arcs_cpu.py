"""Compiled loops that make CSR arrays of arcs, see ``arcs.py``. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np

from fullgnn.kernels.support.vectors import compiled


@compiled()
def pack(source, target, keys):
    """Write ``target * 2^32 + source`` of each arc to ``keys``."""
    for arc in range(len(keys)):
        keys[arc] = np.int64(target[arc]) << 32 | np.int64(source[arc])


@compiled()
def renumber(keys, number):
    """Give both nodes of each key, in place, their new ``number``."""
    for arc in range(len(keys)):
        key = keys[arc]
        keys[arc] = np.int64(number[key >> 32]) << 32 | np.int64(number[key & 0xFFFFFFFF])


@compiled()
def distinct_columns(keys, columns, indptr):
    """Write the sources of the distinct ascending ``keys`` to ``columns``, and to ``indptr[v + 1]`` how many v has.

    ``columns`` may be the memory of ``keys``: a source is written where keys have been read already.

    Args:
        indptr: zeros.

    Returns:
        the number of distinct keys.
    """
    count, last = 0, np.int64(-1)
    for arc in range(len(keys)):
        key = keys[arc]
        if key != last:
            columns[count] = np.int32(key & 0xFFFFFFFF)
            indptr[(key >> 32) + 1] += 1
            count += 1
            last = key
    return count


@compiled()
def count_targets(keys, counts):
    """Add to ``counts`` the number of arcs of each target."""
    for key in keys:
        counts[key >> 32] += 1


@compiled()
def scatter(keys, weight, places, columns, values):
    """Put the source and the weight of each arc at the next of the ``places`` of its target."""
    for arc in range(len(keys)):
        target = keys[arc] >> 32
        place = places[target]
        places[target] = place + 1
        columns[place] = np.int32(keys[arc] & 0xFFFFFFFF)
        values[place] = weight[arc]


@compiled()
def merge_rows(starts, columns, values, counts, begin, end):
    """Sort each row in place, and add the weights of equal columns in the order of the arcs.

    Args:
        counts: (2, num_rows), for the number of arcs of weight 0 and of others that a row keeps, of which the others
            stand first in it.
    """
    for row in range(begin, end):
        start, stop = starts[row], starts[row + 1]
        order = np.argsort(columns[start:stop], kind="mergesort")
        columns[start:stop] = columns[start:stop][order]
        values[start:stop] = values[start:stop][order]
        place, arc, zeros = start, start, 0
        while arc < stop:
            column, total = columns[arc], np.float64(0)
            while arc < stop and columns[arc] == column:
                total += values[arc]
                arc += 1
            values[place] = total
            columns[place] = column
            if values[place] == 0:
                zeros += 1
            else:
                place += 1
        counts[0, row], counts[1, row] = zeros, place - start


@compiled()
def close_gaps(starts, indptr, columns, values):
    """Move the entries of each row, in place, from ``starts`` to ``indptr``, which is not behind."""
    for row in range(len(indptr) - 1):
        shift = starts[row] - indptr[row]
        if shift:
            for place in range(indptr[row], indptr[row + 1]):
                columns[place] = columns[place + shift]
                values[place] = values[place + shift]
