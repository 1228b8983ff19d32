"""The CPU kernel: blocks of source columns that stay in cache, rows that stay in registers.

A row of X is read once for each edge, which is nearly all of the work; its speed depends on the cache that holds the
row. So the columns are cut into blocks, and all rows process the edges of one block before those of the next block:

    for each block of columns          its rows of X fit into the cache (L2 on dense graphs, L3 on sparse ones)
        for each row                   its sum is loaded from ``out`` to registers, and stored back
            for each edge              one row of X is added, another is prefetched

A block costs each row one more load and store of its sum, and one more loop whose end the processor cannot predict. A
block pays off where a row has a few edges in the block, so the number of blocks, all of one size, follows from the
density. Rows of X within one cache line are added quickly, so they need more edges per block than wider rows. Column
ids count from the first column of their block, so most fit into two bytes; a 0/1 pattern then costs two bytes an edge.

Sources: Nishtala, Vuduc, Demmel and Yelick, "When cache blocking of sparse matrix vector multiply works and why", 2007,
for column blocks; Md et al., "DistGNN", SC'21, for column blocks in GNN training, as in DGL, a peer of the benchmarks.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import UnsupportedError
from fullgnn.kernels.dropout.philox import drop_
from fullgnn.kernels.spmm.base import BlockKernel, Epilogue, LocalCSR
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import LINE_BYTES, MAX_ROW_LINES, lanes_of, memory_of, registers, row_lines
from fullgnn.kernels.support.process import even_work, parallel_for
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.spmm import _blocked_cpu
else:
    _blocked_cpu = module_on_use("fullgnn.kernels.spmm._blocked_cpu")

MIN_BLOCK_COLUMNS = 2048  # 1 MB of X, an L2 cache, where a row has MAX_ROW_LINES
MAX_BLOCKS = 32  # a row adds their sums one after the other, so more blocks would cost accuracy
MIN_EDGES, MIN_EDGES_NARROW = 12, 72  # mean edges of a row in a block; narrow: a row of X is within a cache line
CHUNKS_PER_THREAD = 2  # chunks of rows. Each reads all of X: more chunks balance better, fewer use caches better
MIN_SHARED_LINES = 1 << 18  # cache lines of X, about 0.2 ms of work; for fewer, one thread: waking others costs as much
ROW_COST = 8  # cost of one more row in one more block, in edges


class BlockedCSR(BlockKernel):
    """Compiled product for float32 and float64 on a CPU; see the head of this file.

    A row is summed by one thread in the order of its columns, so the result does not depend on the number of threads.
    """

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "BlockedMatrix":
        self.name_for(adj.indices.device, dtype)
        return BlockedMatrix(adj, dtype)

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        if not self.supports(device, dtype):
            raise UnsupportedError(
                f"kernel=blocked multiplies float32 and float64 on a CPU, not {dtype} on {device}: choose kernel=auto"
            )
        return "blocked"

    @staticmethod
    def supports(device: torch.device, dtype: torch.dtype) -> bool:
        return gpu.runs_host_loops(device) and dtype in (torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class ColumnBlocks:
    """The edges of a matrix in the order of their block of columns, then row, then column."""

    num_blocks: int
    width: int  # columns of a block; the last one may have fewer
    starts: np.ndarray  # (num_blocks * num_rows + 1,) int32; starts of the edges of block 0 and row 0, of row 1, ...
    columns: np.ndarray  # (nnz + PADDING,) uint16 or int32, counted from the first column of the block
    values: np.ndarray | None  # (nnz,)


def block_width(num_rows: int, num_cols: int, nnz: int, edges: int) -> int:
    """Columns of a block, the same for all blocks, so that a row has about ``edges`` edges in a block on average."""
    wanted = max(MIN_BLOCK_COLUMNS, edges * num_rows * num_cols // max(1, nnz))
    num_blocks = min(MAX_BLOCKS, max(1, round(num_cols / wanted)))
    return -(-num_cols // num_blocks)


def held_bytes(num_rows: int, num_cols: int, nnz: int, value_bytes: int, row_bytes: set[int]) -> int:
    """Bytes of a ``BlockedMatrix`` of this shape after products with rows of X of these ``row_bytes``.

    Args:
        value_bytes: size of one stored value; 0 for a pattern.
    """
    edges = {MIN_EDGES, *(MIN_EDGES_NARROW for size in row_bytes if size <= LINE_BYTES)}
    total = 4 * (num_rows + 1)
    for width in {block_width(num_rows, num_cols, nnz, num_edges) for num_edges in edges}:
        num_blocks = -(-num_cols // width)
        total += 4 * (num_blocks * num_rows + 1) + nnz * ((2 if width <= 1 << 16 else 4) + value_bytes)
    return total


class BlockedMatrix:
    """One ``LocalCSR`` in the layouts that the widths multiplied so far need: one, sometimes two."""

    def __init__(self, adj: LocalCSR, dtype: torch.dtype):
        self.num_rows, self.num_cols, self.nnz, self.dtype = adj.num_rows, adj.num_cols, adj.nnz, dtype
        self._indptr = adj.indptr.numpy()
        values = None if adj.values is None else adj.values.to(dtype).numpy()
        one_block = ColumnBlocks(1, adj.num_cols, self._indptr, adj.indices.numpy(), values)
        width = self._width(MIN_EDGES)
        self._layouts = {width: self._regrouped(one_block, width)}
        self._chunk_bounds: dict[tuple[int, int], list[int]] = {}

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
        """``Kernel.spmm`` for an ``out`` that is not empty."""
        num_rows, width = out.shape
        assert x.shape == (self.num_cols, width) and num_rows == self.num_rows, (x.shape, out.shape)
        assert x.dtype == out.dtype == self.dtype, (x.dtype, out.dtype)
        scale, bias = epilogue.scale, epilogue.bias
        assert scale is None or (scale.shape == (num_rows,) and scale.dtype == self.dtype), (scale.shape, scale.dtype)
        assert bias is None or (bias.shape == (width,) and bias.dtype == self.dtype), (bias.shape, bias.dtype)
        size, x_at, out_at = x.element_size(), memory_of(x), memory_of(out)
        num_lines = -(-width * size // LINE_BYTES)
        layout = self.layout(MIN_EDGES if num_lines > 1 else MIN_EDGES_NARROW)
        bounds = self.chunk_bounds(layout, shared=self.nnz * num_lines >= MIN_SHARED_LINES)
        factors = (x.new_empty(0) if scale is None else scale).detach().contiguous().numpy()
        bias = None if bias is None else bias.detach().contiguous()
        finish = factors, 0 if bias is None else bias.data_ptr(), epilogue.relu
        # Where a row of X begins every MAX_ROW_LINES lines, narrower slices would use half of the sets of the caches.
        most_lines = MAX_ROW_LINES if x_at[1] % (MAX_ROW_LINES * LINE_BYTES) == 0 else row_lines()
        slices: list[tuple[Callable[..., None], tuple[int, int]]] = []
        for column, slice_width in _slices(width, LINE_BYTES // size, most_lines):
            lanes = lanes_of(slice_width, registers()[1] // size)
            num_vectors = -(-slice_width // lanes)
            kind = lanes, num_vectors, layout.columns.dtype.name, layout.values is not None
            loop = _blocked_cpu.multiplier(8 * size, *kind)
            slices.append((loop, (column * size, (slice_width - lanes) * size)))

        def compute(task: tuple[tuple[Callable[..., None], tuple[int, int]], tuple[int, int]]) -> None:
            (loop, columns), rows = task
            scratch = np.empty(MAX_ROW_LINES * LINE_BYTES // size, factors.dtype)
            blocks = layout.num_blocks, layout.width, layout.starts, layout.columns
            loop(blocks, layout.values, (num_rows, *rows), x_at, out_at, columns, finish, accumulate, scratch)

        parallel_for(compute, itertools.product(slices, itertools.pairwise(bounds)))
        if epilogue.dropout is not None:
            drop_(out, epilogue.dropout)

    def layout(self, min_edges: int) -> ColumnBlocks:
        """The layout with ``min_edges`` edges of a row in one block on average, computed on first use."""
        width = self._width(min_edges)
        if width not in self._layouts:
            self._layouts[width] = self._regrouped(next(iter(self._layouts.values())), width)
        return self._layouts[width]

    def chunk_bounds(self, layout: ColumnBlocks, shared: bool) -> list[int]:
        """Bounds of the chunks of rows for the threads, about equal in work; one chunk unless ``shared``."""
        num_threads = torch.get_num_threads() if shared else 1
        num_chunks = min(num_threads * CHUNKS_PER_THREAD, self.num_rows) if num_threads > 1 else 1
        key = layout.width, num_chunks
        if key not in self._chunk_bounds:
            row_cost = ROW_COST * layout.num_blocks
            self._chunk_bounds[key] = even_work(self._indptr, self.num_rows, row_cost, num_chunks)
        return self._chunk_bounds[key]

    def tensors(self) -> list[Tensor]:
        arrays = [self._indptr]
        for layout in self._layouts.values():
            arrays += [layout.starts, layout.columns]
            if layout.values is not None:
                arrays.append(layout.values)
        return [torch.from_numpy(array) for array in arrays]

    def _width(self, edges: int) -> int:
        return block_width(self.num_rows, self.num_cols, self.nnz, edges)

    def _regrouped(self, layout: ColumnBlocks, width: int) -> ColumnBlocks:
        num_blocks = -(-self.num_cols // width)
        starts = np.zeros(num_blocks * self.num_rows + 2, np.int32)
        columns = np.zeros(self.nnz + _blocked_cpu.PADDING, np.uint16 if width <= 1 << 16 else np.int32)
        values = None if layout.values is None else np.empty_like(layout.values)
        value_type = "" if values is None else values.dtype.name
        regroup = _blocked_cpu.regrouper(layout.columns.dtype.name, columns.dtype.name, value_type)
        old = layout.num_blocks, layout.width, layout.starts, layout.columns, layout.values
        regroup(self.num_rows, *old, width, starts, columns, values)
        return ColumnBlocks(num_blocks, width, starts[:-1], columns, values)


def _slices(width: int, per_line: int, most_lines: int) -> list[tuple[int, int]]:
    """(first column, width) of slices of at most ``most_lines`` cache lines, as equal as whole lines allow."""
    num_lines = -(-width // per_line)
    num_slices = -(-num_lines // most_lines)
    step = -(-num_lines // num_slices) * per_line
    return [(first, min(step, width - first)) for first in range(0, width, step)]
