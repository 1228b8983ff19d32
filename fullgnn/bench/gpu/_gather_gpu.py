"""Rows gathered by random indices and summed: what a sparse product does, without its structure. Imports Triton."""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

STEPS = 16


@triton.jit
def gather_rows(
    table,  # (num_rows, stride) float32
    index,  # (num_programs * STEPS * ROWS,) int32 rows of the table
    out,  # (num_programs, COLUMNS) float32
    stride,
    width,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Program p sums the rows of its STEPS * ROWS indices."""
    program = tl.program_id(0)
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(STEPS):
        source = tl.load(index + (program * STEPS + step) * ROWS + row).to(tl.int64) * stride
        total += tl.load(table + source[:, None] + column[None, :], mask=column[None, :] < width, other=0.0)
    tl.store(out + program * COLUMNS + column, tl.sum(total, axis=0))


@triton.jit
def mark(out):
    """Nothing: in a list of launches it says where the next part begins."""
    tl.store(out, 0.0)


class GatherSum:
    """Sums of ``rows_at_once * STEPS`` rows of a table each.

    Args:
        elements: of the tile that a program holds; with ``num_warps``, how many loads are under way.
    """

    def __init__(self, width: int, elements: int, num_warps: int):
        self._width, self._num_warps = width, num_warps
        self._columns = triton.next_power_of_2(width)
        self.rows_at_once = max(1, elements // self._columns)

    def __call__(self, table: Tensor, index: Tensor) -> Tensor:
        """(num_rows, width) float32 and (num_indices,) int32 to (num_sums, width); a rest that fills no sum is left."""
        num_sums = self.num_gathered(index) // (self.rows_at_once * STEPS)
        out = table.new_empty(num_sums, self._columns)
        gather_rows[(num_sums,)](
            table,
            index,
            out,
            table.stride(0),
            self._width,
            ROWS=self.rows_at_once,
            STEPS=STEPS,
            COLUMNS=self._columns,
            num_warps=self._num_warps,
        )
        return out[:, : self._width]

    def num_gathered(self, index: Tensor) -> int:
        """Rows that a call reads."""
        return index.numel() // (self.rows_at_once * STEPS) * self.rows_at_once * STEPS


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """What is compiled: (kernel, signature, constants, options) of representative calls."""
    pointers = {"table": "*fp32:16", "index": "*i32:16", "out": "*fp32:16"}
    for columns, rows, num_warps in ((16, 128, 4), (128, 32, 8)):
        sizes = {"stride": "i32:16", "width": "i32:16"}
        constants = {"ROWS": rows, "STEPS": STEPS, "COLUMNS": columns}
        yield gather_rows, pointers | sizes, constants, {"num_warps": num_warps}
    yield mark, {"out": "*fp32:16"}, {}, {"num_warps": 1}
