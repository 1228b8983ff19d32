"""The products for a matrix that is multiplied once or twice, of which nothing is prepared.

On a CPU it is the loop of ``blocked.py``, with the rows as they are: cutting a matrix into blocks of columns reads and
writes all of its edges, which pays off over many products. A sampled block is multiplied once in each pass, and its
rows of X are few: all columns are one block here.

On a GPU one launch walks the rows (``_single_use_gpu.py``). The bins of ``triton_csr.py`` would make the host wait for
the number of rows in each.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fullgnn.errors import PartitionError
from fullgnn.kernels.epilogue.epilogue import Epilogue
from fullgnn.kernels.spmm.base import BlockKernel, Kernel, LocalCSR
from fullgnn.kernels.spmm.blocked import BlockedCSR, BlockedMatrix, ColumnBlocks
from fullgnn.kernels.spmm.reading import check_supported
from fullgnn.kernels.spmm.torch_csr import TorchCSR
from fullgnn.kernels.support import gpu
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.spmm import _blocked_cpu, _single_use_gpu
else:
    _blocked_cpu = module_on_use("fullgnn.kernels.spmm._blocked_cpu")
    _single_use_gpu = module_on_use("fullgnn.kernels.spmm._single_use_gpu")

MAX_EDGES = 2**31 - (1 << 20)
"""A lane of a GPU counts edges in 32 bits, and may count a little past the last one."""


class SingleUseCSR(BlockedCSR):
    """``BlockedCSR`` without blocks. ``prepare`` copies the column ids, unless there is memory behind them."""

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "OneBlock":
        self.name_for(adj.indices.device, dtype)
        return OneBlock(adj, dtype)


class OneBlock(BlockedMatrix):
    """One ``LocalCSR`` whose columns are one block."""

    def __init__(self, adj: LocalCSR, dtype: torch.dtype):
        self.num_rows, self.num_cols, self.nnz, self.dtype = adj.num_rows, adj.num_cols, adj.nnz, dtype
        self._indptr = adj.indptr.numpy()
        columns = padded(adj.indices, _blocked_cpu.PADDING).numpy()
        values = None if adj.values is None else adj.values.to(dtype).numpy()
        self._layout = ColumnBlocks(1, adj.num_cols, self._indptr, columns, values)
        self._layouts = {adj.num_cols: self._layout}
        self._chunk_bounds = {}

    def layout(self, min_edges: int) -> ColumnBlocks:
        return self._layout


def padded(indices: torch.Tensor, padding: int) -> torch.Tensor:
    """``indices`` and ``padding`` elements of any content behind them; a copy only where its memory ends before."""
    length, first = len(indices) + padding, indices.storage_offset()
    if indices.is_contiguous() and indices.untyped_storage().nbytes() >= (first + length) * indices.element_size():
        return indices.as_strided((length,), (1,), first)
    copy = indices.new_zeros(length)
    copy[: len(indices)] = indices
    return copy


class SingleUseTriton(BlockKernel):
    """One launch over the rows of a ``LocalCSR`` as it is. Sums are float32, or float64 where X is."""

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "PlainRows":
        self.name_for(adj.indices.device, dtype)
        if adj.nnz > MAX_EDGES:
            raise PartitionError(f"a block of the adjacency has {adj.nnz} non-zeros, about 2^31: use more processes")
        values = None if adj.values is None else adj.values.to(dtype)
        return PlainRows(adj.indptr, adj.indices, values, adj.num_rows, adj.num_cols)

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        check_supported("csr", device, dtype)
        return "csr"


class PlainRows(LocalCSR):
    """A ``LocalCSR`` as it is, with values of the dtype of X."""

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
        """``Kernel.spmm``."""
        _single_use_gpu.multiply(self, x, out, accumulate, epilogue)


def single_use_kernel(device: torch.device, dtype: torch.dtype) -> Kernel:
    """The kernel for matrices on ``device`` that are multiplied once or twice."""
    if SingleUseCSR.supports(device, dtype):
        return SingleUseCSR()
    if gpu.runs_triton(device) and dtype in (torch.float32, torch.float64):
        return SingleUseTriton()
    return TorchCSR()
