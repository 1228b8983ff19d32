"""Rows gathered by random indices and summed: what a sparse product does, without its structure. Imports Triton."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

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


def gather_sum(table: Tensor, index: Tensor, elements: int, num_warps: int) -> tuple[Tensor, int]:
    """Sum gathered rows of a table, each ``num_rows`` indices to one row; a rest that fills no sum is not read.

    Args:
        table: (num_table_rows, width) float32.
        index: (num_indices,) int32.
        elements: of the tile that a program holds; with ``num_warps``, how many loads are under way.

    Returns:
        (num_sums, width), and ``num_rows``.
    """
    width, columns = table.shape[1], triton.next_power_of_2(table.shape[1])
    rows_at_once = max(1, elements // columns)
    num_rows = rows_at_once * STEPS
    out = table.new_empty(index.numel() // num_rows, columns)
    sizes = {"ROWS": rows_at_once, "STEPS": STEPS, "COLUMNS": columns}
    gather_rows[(len(out),)](table, index, out, table.stride(0), width, **sizes, num_warps=num_warps)
    return out[:, :width], num_rows
