"""The counting sort of :mod:`fullgnn.kernels.edges.index`. Importing this module imports numba."""

import numba
import numpy as np

from fullgnn.kernels.spmm.base import LocalCSR


def transpose_cpu(csr: LocalCSR) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The indptr, targets and places of :class:`fullgnn.kernels.edges.index.Transposed`."""
    starts = np.zeros(csr.num_cols + 2, np.int32)
    targets, places = np.empty(csr.nnz, np.int32), np.empty(csr.nnz, np.int32)
    _sort(csr.indptr.contiguous().numpy(), csr.indices.contiguous().numpy(), starts, targets, places)
    return starts[:-1], targets, places


@numba.njit(cache=True, nogil=True)
def _sort(indptr, indices, starts, targets, places):
    """One pass counts the edges of each source, another places them; ``starts`` has one element more than indptr."""
    for edge in range(len(indices)):
        starts[indices[edge] + 2] += 1
    for source in range(2, len(starts)):
        starts[source] += starts[source - 1]
    for target in range(len(indptr) - 1):
        for edge in range(indptr[target], indptr[target + 1]):
            place = starts[indices[edge] + 1]  # of the next edge of this source; at the end, the next source's start
            targets[place], places[place] = target, edge
            starts[indices[edge] + 1] += 1
