"""Rows gathered by random indices and summed: what a sparse product does, without its structure."""

import triton
import triton.language as tl
from torch import Tensor

_STEPS = 16


@triton.jit
def _sum_rows(
    table_ptr,  # (num_rows, stride) float32
    index_ptr,  # (num_programs * STEPS * ROWS,) int32 rows of the table
    out_ptr,  # (num_programs, COLUMNS) float32
    stride,
    width,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    program = tl.program_id(0)
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(STEPS):
        index = tl.load(index_ptr + (program * STEPS + step) * ROWS + row).to(tl.int64)
        total += tl.load(table_ptr + index[:, None] * stride + column[None, :], mask=column[None, :] < width, other=0.0)
    tl.store(out_ptr + program * COLUMNS + column, tl.sum(total, axis=0))


class GatherSum:
    """Sums of ``rows_at_once * 16`` rows of a table each.

    Args:
        elements: of the tile that a program holds; with ``num_warps``, how many loads are under way.
    """

    def __init__(self, width: int, elements: int, num_warps: int):
        self._width, self._num_warps = width, num_warps
        self._columns = triton.next_power_of_2(width)
        self.rows_at_once = max(1, elements // self._columns)

    def __call__(self, table: Tensor, index: Tensor) -> Tensor:
        """(num_rows, width) float32 and (num_indices,) int32 to (num_sums, width); a rest that fills no sum is left."""
        num_sums = index.numel() // (self.rows_at_once * _STEPS)
        out = table.new_empty(num_sums, self._columns)
        _sum_rows[(num_sums,)](
            table,
            index,
            out,
            table.stride(0),
            self._width,
            ROWS=self.rows_at_once,
            STEPS=_STEPS,
            COLUMNS=self._columns,
            num_warps=self._num_warps,
        )
        return out[:, : self._width]

    def num_gathered(self, index: Tensor) -> int:
        """Rows that a call reads."""
        return index.numel() // (self.rows_at_once * _STEPS) * self.rows_at_once * _STEPS
