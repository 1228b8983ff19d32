"""The counting sort of :mod:`fullgnn.kernels.edges.index`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import torch
from torch import Tensor

from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.vectors import compiled


def transpose_cpu(csr: LocalCSR) -> tuple[Tensor, Tensor, Tensor]:
    """The indptr, targets and places of :class:`fullgnn.kernels.edges.index.Transposed`."""
    starts = torch.zeros(csr.num_cols + 2, dtype=torch.int32)
    targets, places = (torch.empty(csr.nnz, dtype=torch.int32) for _ in range(2))
    arrays = (csr.indptr.contiguous(), csr.indices.contiguous(), starts, targets, places)
    _sort(*(array.numpy() for array in arrays))
    return starts[:-1], targets, places


@compiled()
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
