"""Y = activation([A X | rows of X] W + b), the product of a GraphSAGE layer, for a matrix A that is multiplied once.

The two halves of the dense product's operand are never written side by side. A block of rows goes through all steps
while it is in the cache:

    for each block of rows
        A X of the block               rows of X are read where they lie, one for each edge
        the rows of X beside it        copied to the cache
        for each tile of Y             in registers, as in ``kernels/dense/_dense_cpu.py``: for each column of the two
            tile += outer(column, row of W)

A X is kept for the gradient of W. An element of Y is summed column after column, as oneDNN sums it, so that the result
has the same bits as the steps one after the other.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.dropout.philox import drop_
from fullgnn.kernels.epilogue.epilogue import Epilogue
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.spmm.blocked import BlockedCSR
from fullgnn.kernels.spmm.single_use import OneBlock
from fullgnn.kernels.support.aligned import LINE_BYTES, memory_of, registers, row_lines, slices_of
from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.spmm import _beside_cpu
else:
    _beside_cpu = module_on_use("fullgnn.kernels.spmm._beside_cpu")

BLOCK_ROWS = 48
CHUNKS_PER_THREAD = 8  # chunks of rows; a thread takes the next one when it has finished one
MIN_SHARED_WORK = 1 << 20  # multiplications of the dense product; for fewer, one thread: waking others costs as much


def multiplies_beside(adj: LocalCSR, x: Tensor, num_columns: int) -> bool:
    """Whether ``spmm_beside_linear`` computes the product of these with W of ``num_columns``."""
    enough = adj.num_rows >= _tile_rows(x.element_size(), num_columns) if num_columns else False
    return enough and x.shape[1] > 0 and BlockedCSR.supports(x.device, x.dtype)


def spmm_beside_linear(
    adj: LocalCSR, x: Tensor, own: Tensor, scale: Tensor | None, weight: Tensor, epilogue: Epilogue
) -> tuple[Tensor, Tensor]:
    """diag(scale) A X, and [diag(scale) A X | X_own] W with an epilogue without a row scale.

    Args:
        adj: (n, m) A.
        x: (m, f), contiguous rows of any stride.
        own: (n,) int32, the rows of X beside those of A X.
        scale: (n,); None: all 1.
        weight: (2 f, h).

    Returns:
        (n, f) and (n, h). The number of threads does not change a bit of them.
    """
    assert epilogue.scale is None and len(weight) == 2 * x.shape[1], (len(weight), x.shape)
    assert multiplies_beside(adj, x, weight.shape[1]) and len(own) == adj.num_rows, (adj.num_rows, x.shape)
    matrix, (f, h), size = OneBlock(adj, x.dtype), (x.shape[1], weight.shape[1]), x.element_size()
    layout, num_rows = matrix.layout(0), adj.num_rows
    x_slices = slices_of(f, size, row_lines() * LINE_BYTES // registers()[1])
    w_slices = slices_of(h, size, registers()[0] // 8)
    x_columns, w_columns = (slices.num_vectors * slices.lanes for slices in (x_slices, w_slices))
    tile_rows = _tile_rows(size, h)
    kind = *x_slices[:2], *w_slices[:2], tile_rows, layout.columns.dtype.name, layout.values is not None
    loop = _beside_cpu.multiplier_beside(8 * size, *kind)
    weight, bias = weight.detach().contiguous(), None if epilogue.bias is None else epilogue.bias.detach().contiguous()
    factors = (x.new_empty(0) if scale is None else scale.contiguous()).numpy()
    finish = factors, 0 if bias is None else bias.data_ptr(), epilogue.relu
    ax, y = x.new_empty(num_rows, f), x.new_empty(num_rows, h)
    edges = (layout.starts, layout.columns), layout.values, own.numpy()
    from_x, to_ax = (memory_of(x), x_slices.offsets(size)), ax.data_ptr()
    from_w, to_y = ((weight.data_ptr(), h * size), w_slices.offsets(size)), y.data_ptr()

    def multiply(rows: slice) -> None:
        own_rows = np.empty((min(BLOCK_ROWS, rows.stop - rows.start), f), factors.dtype)
        scratch = np.empty(max(tile_rows * w_columns, x_columns), factors.dtype)
        loop(*edges, (rows.start, rows.stop), *from_x, to_ax, *from_w, to_y, finish, own_rows, scratch)

    shared = num_rows * 2 * f * h >= MIN_SHARED_WORK
    num_chunks = min(CHUNKS_PER_THREAD * torch.get_num_threads(), num_rows // BLOCK_ROWS) if shared else 1
    parallel_for(multiply, even_slices(num_rows, max(1, num_chunks)))
    return ax, y if epilogue.dropout is None else drop_(y, epilogue.dropout)


def _tile_rows(size: int, num_columns: int) -> int:
    """Rows of a tile of Y, whose vectors fill three quarters of the registers."""
    num_registers = registers()[0]
    return num_registers * 3 // 4 // slices_of(num_columns, size, num_registers // 8).num_vectors
