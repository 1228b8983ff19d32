"""The compiled loop of :mod:`fullgnn.sampling.gather`. Importing this module imports numba."""

import numba
import numpy as np

from fullgnn.sampling._atomics_cpu import prefetch_line

AHEAD = 8  # rows
LINE_BYTES = 64


@numba.njit(cache=True, nogil=True)
def gather(source, rows, target):
    """Copy row ``rows[i]`` of ``source`` to row i of ``target``, for every i."""
    num_rows, width = target.shape
    address, stride = source.ctypes.data, source.strides[0]
    row_bytes = width * source.itemsize
    for i in range(num_rows):
        ahead = address + np.intp(rows[min(i + AHEAD, num_rows - 1)]) * stride
        for at in range(0, row_bytes, LINE_BYTES):
            prefetch_line(ahead + at)
        row, out = source[rows[i]], target[i]
        for column in range(width):
            out[column] = row[column]
