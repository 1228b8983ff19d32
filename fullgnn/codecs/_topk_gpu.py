"""The kernel of :mod:`fullgnn.codecs.topk`. Importing this module imports Triton."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import triton
import triton.language as tl
from torch import Tensor

ELEMENTS = 1024  # that a program writes at a time
FEWEST_COLUMNS = 256  # of them in a row
CODES = 64  # of a row that are read at a time


def decode(table: Tensor, index: Tensor, columns: Tensor, codebook: Tensor, out: Tensor) -> None:
    """Write the decoded rows ``index``, (m,) int64, of the (n, W) uint8 ``table`` to the (m, F) ``out``, in one pass.

    Args:
        columns: (W,) int64, the first column of the group of each code.
        codebook: (W,) of the dtype of ``out``.
    """
    if out.numel():
        sizes, (rows, at_once) = (len(index), out.shape[1], table.shape[1]), _shape(out.shape[1])
        _decode[(triton.cdiv(len(index), rows),)](table, index, columns, codebook, out, *sizes, rows, at_once, CODES)


def _shape(width: int) -> tuple[int, int]:
    """The rows of a program, and their columns that it writes at a time. Of seven shapes with 2, 4
    and 8 warps each, this one was the fastest or nearly so on an H100, at widths of 128, 602 and 768."""
    columns = min(ELEMENTS, max(FEWEST_COLUMNS, triton.next_power_of_2(width)))
    return ELEMENTS // columns, columns


@triton.jit
def _decode(
    table,
    index,
    columns,
    codebook,
    out,
    num_rows,
    width,
    num_codes,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CODES: tl.constexpr,
):
    """Write zeros, and then the values of the codebook at the kept positions."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = row < num_rows
    to = out + row * width
    for first in range(0, width, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        zeros = tl.zeros([ROWS, COLUMNS], out.dtype.element_ty)
        tl.store(to[:, None] + column[None, :], zeros, mask=is_row[:, None] & (column < width)[None, :])
    tl.debug_barrier()  # other threads of the program have written the zeros
    source = table + tl.load(index + row, mask=is_row, other=0) * num_codes
    for first in range(0, num_codes, CODES):
        code = first + tl.arange(0, CODES)
        is_code = code < num_codes
        inside = is_row[:, None] & is_code[None, :]
        position = tl.load(source[:, None] + code[None, :], mask=inside, other=0).to(tl.int32)
        column = tl.load(columns + code, mask=is_code, other=0)
        value = tl.load(codebook + code, mask=is_code, other=0)
        at = to[:, None] + column[None, :] + position
        tl.store(at, tl.broadcast_to(value[None, :], [ROWS, CODES]), mask=inside)
