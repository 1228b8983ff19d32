"""The edges of a block in the order of their sources, so that one thread sums the gradient of a source."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support import gpu
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.edges import _index_cpu
else:
    _index_cpu = module_on_use("fullgnn.kernels.edges._index_cpu")


@dataclass(frozen=True, eq=False)
class Transposed(LocalCSR):
    """The transpose of a ``LocalCSR`` of n targets and m sources: an (m, n) matrix, whose edges are sorted by source,
    then by target."""

    places: Tensor = field(kw_only=True)  # (E,) int32, the edge's number in the ``LocalCSR``


def transpose(csr: LocalCSR) -> Transposed:
    """Sort the edges of a block by source, once, with a counting sort on a CPU."""
    if gpu.runs_host_loops(csr.indices.device):
        return _transposed(csr, *_index_cpu.transpose_cpu(csr))
    return transpose_torch(csr)


def transpose_torch(csr: LocalCSR) -> Transposed:
    """``transpose`` as torch operations, for none of which the host waits."""
    sources, places = torch.sort(csr.indices, stable=True)
    starts = torch.arange(csr.num_cols + 1, dtype=torch.int32, device=csr.indices.device)
    indptr = torch.searchsorted(sources, starts, out_int32=True)  # where the edges of each source begin
    return _transposed(csr, indptr, edge_rows(csr)[places].int(), places.int())


def _transposed(csr: LocalCSR, indptr: Tensor, targets: Tensor, places: Tensor) -> Transposed:
    values = None if csr.values is None else csr.values.index_select(0, places)
    return Transposed(indptr, targets, values, csr.num_cols, csr.num_rows, csr.single_use, places=places)


def edge_rows(edges: LocalCSR) -> Tensor:
    """(E,) int64 row of each edge: its target, or in the ``Transposed`` its source."""
    rows = torch.arange(len(edges.indptr) - 1, device=edges.indptr.device)
    return rows.repeat_interleave(edges.indptr.diff().long(), output_size=edges.nnz)


def repeat_targets(csr: LocalCSR, rows: Tensor) -> Tensor:
    """(E, ...) row of each edge's target, of (n, ...) ``rows``; differentiable."""
    return rows.index_select(0, edge_rows(csr))
