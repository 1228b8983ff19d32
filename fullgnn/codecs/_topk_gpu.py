"""The kernel of :mod:`fullgnn.codecs.topk`. Importing this module imports Triton."""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

ROWS = 4  # of a program
COLUMNS = 256  # of a row that are written at a time
CODES = 64  # of a row that are read at a time


def decode(table: Tensor, index: Tensor, columns: Tensor, codebook: Tensor, out: Tensor) -> None:
    """Write the decoded rows ``index``, (m,) int64, of the (n, W) uint8 ``table`` to the (m, F) ``out``, in one pass.

    Args:
        columns: (W,) int32, the first column of the group of each code.
        codebook: (W,) of the dtype of ``out``.
    """
    if out.numel():
        sizes = len(index), out.shape[1], table.shape[1]
        _decode[(triton.cdiv(len(index), ROWS),)](table, index, columns, codebook, out, *sizes, ROWS, COLUMNS, CODES)


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


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """Variants to compile: (kernel, signature, constants, options) of representative calls."""
    sizes = {"num_rows": "i32", "width": "i32", "num_codes": "i32"}
    for dtype in ("*fp32", "*fp64", "*bf16"):
        pointers = {"table": "*u8:16", "index": "*i64", "columns": "*i32:16", "codebook": dtype, "out": f"{dtype}:16"}
        yield _decode, {**pointers, **sizes}, {"ROWS": ROWS, "COLUMNS": COLUMNS, "CODES": CODES}, {}
