"""The edges of a block in the order of their sources, so that one thread sums the gradient of a source."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support import gpu


@dataclass(frozen=True, eq=False)
class Transposed:
    """The edges of a ``LocalCSR`` of n targets and m sources, sorted by source, then by target; shapes are local."""

    indptr: Tensor  # (m + 1,) int32: the edges of source j are indptr[j] to indptr[j + 1]
    targets: Tensor  # (E,) int32
    places: Tensor  # (E,) int32, the edge's number in the ``LocalCSR``
    values: Tensor | None  # (E,) weights of the edges; None: all 1
    single_use: bool = False  # see ``LocalCSR``

    @property
    def nnz(self) -> int:
        return len(self.targets)

    @property
    def num_sources(self) -> int:
        return len(self.indptr) - 1


def transpose(csr: LocalCSR) -> Transposed:
    """Sort the edges of a block by source, once, with a counting sort on a CPU."""
    if gpu.runs_host_loops(csr.indices.device):
        # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
        from fullgnn.kernels.edges._index_cpu import transpose_cpu

        indptr, targets, places = transpose_cpu(csr)
        return Transposed(indptr, targets, places, _moved(csr.values, places), csr.single_use)
    return transpose_torch(csr)


def transpose_torch(csr: LocalCSR) -> Transposed:
    """``transpose`` as torch operations, for none of which the host waits."""
    sources, places = torch.sort(csr.indices, stable=True)
    starts = torch.arange(csr.num_cols + 1, dtype=torch.int32, device=csr.indices.device)
    indptr = torch.searchsorted(sources, starts, out_int32=True)  # where the edges of each source begin
    return Transposed(indptr, edge_targets(csr)[places].int(), places.int(), _moved(csr.values, places), csr.single_use)


def _moved(values: Tensor | None, places: Tensor) -> Tensor | None:
    return None if values is None else values.index_select(0, places)


def edge_targets(csr: LocalCSR) -> Tensor:
    """(E,) int64 target of each edge."""
    return edge_rows(csr)


def edge_rows(edges: LocalCSR | Transposed) -> Tensor:
    """(E,) int64 row of each edge: its target, or in the transposed index its source."""
    rows = torch.arange(len(edges.indptr) - 1, device=edges.indptr.device)
    return rows.repeat_interleave(edges.indptr.diff().long(), output_size=edges.nnz)


def repeat_targets(csr: LocalCSR, rows: Tensor) -> Tensor:
    """(E, ...) row of each edge's target, of (n, ...) ``rows``; differentiable."""
    return rows.index_select(0, edge_targets(csr))
