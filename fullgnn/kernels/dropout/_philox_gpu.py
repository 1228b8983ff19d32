"""The dropout of ``philox.py`` on a GPU, as a kernel or fused into another one. Importing this module imports Triton.

A kernel that ends with a dropout takes the arguments ``mask_arguments(mask)``, and passes them as one tuple to ``drop``
with its tile.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.dropout.philox import Mask
from fullgnn.kernels.support.gpu import vector_unit

ELEMENTS = 1024  # elements of a program's tile: two Philox calls per thread
MAX_COLUMNS = 128  # columns of this tile, at most

MaskArguments = tuple[Tensor | None, Tensor | None, int, int, int, float]
"""The arguments of a dropout in a kernel: node_id, epoch, seed, layer, threshold and drop_scale."""


def mask_arguments(mask: Mask | None) -> MaskArguments:
    """The kernel arguments of a dropout; None: the arguments for no dropout."""
    if mask is None:
        return None, None, 0, 0, 0, 1.0
    return mask.node_id.contiguous(), mask.epoch, signed(mask.seed), mask.layer, mask.threshold, mask.scale


def dropout_gpu(x: Tensor, out: Tensor, mask: Mask) -> Tensor:
    """Apply the dropout ``mask`` to ``x`` and write the result to ``out``, which may be ``x``.

    Args:
        x, out: (n, F) of one floating dtype, any row stride.
    """
    num_rows, num_columns = x.shape
    if x.numel():
        assert num_columns == 1 or (x.stride(1), out.stride(1)) == (1, 1), (x.stride(), out.stride())
        columns = min(MAX_COLUMNS, max(4, triton.next_power_of_2(num_columns)))
        rows = ELEMENTS // columns
        grid = (triton.cdiv(num_rows, rows), triton.cdiv(num_columns, columns))
        unit = vector_unit(x, x.stride(0), out.stride(0), num_columns)
        strides, num_units = (x.stride(0) // unit, out.stride(0) // unit), num_columns // unit
        _dropout[grid](x, out, *strides, num_rows, num_units, *mask_arguments(mask), unit, rows, columns)
    return out


def drop_entries_gpu(values: Tensor, row: Tensor, column: Tensor, out: Tensor, mask: Mask) -> Tensor:
    """Write to ``out`` what ``dropout_gpu`` makes of (nnz,) ``values`` at the (nnz,) int32 rows and columns."""
    if len(values):
        grid = (triton.cdiv(len(values), ELEMENTS),)
        _drop_entries[grid](values, row, column, out, len(values), *mask_arguments(mask), ELEMENTS)
    return out


@triton.jit
def kept(node, column, seed, epoch, layer, threshold):
    """Whether the dropout keeps the elements of int64 ``node`` and ``column``, which broadcast against each other.

    This function makes one Philox call per element; ``kept_tile`` makes a quarter of these calls.
    """
    word_0, word_1, word_2, word_3 = _words(node, column // 4, seed, epoch, layer)
    at = column % 4
    word = tl.where(at < 2, tl.where(at == 0, word_0, word_1), tl.where(at == 2, word_2, word_3))
    return word >= tl.cast(threshold, tl.uint32)


@triton.jit
def kept_tile(node, first_column, seed, epoch, layer, threshold, COLUMNS: tl.constexpr):
    """The [ROWS, COLUMNS] result of ``kept`` for [ROWS] ``node`` and the COLUMNS columns from ``first_column`` on.

    COLUMNS and ``first_column`` are multiples of 4.
    """
    group = first_column // 4 + tl.arange(0, COLUMNS // 4)
    word_0, word_1, word_2, word_3 = _words(node[:, None], group[None, :], seed, epoch, layer)
    least = tl.cast(threshold, tl.uint32)
    keep_0, keep_1 = (word_0 >= least).to(tl.int8), (word_1 >= least).to(tl.int8)
    keep_2, keep_3 = (word_2 >= least).to(tl.int8), (word_3 >= least).to(tl.int8)
    return tl.interleave(tl.interleave(keep_0, keep_2), tl.interleave(keep_1, keep_3)) != 0


@triton.jit
def drop(y, row, num_rows, first_column, dropout):
    """Apply the dropout to the [ROWS, COLUMNS] tile ``y`` of the [ROWS] rows ``row``; none if ``node_id`` is None."""
    node_id, epoch, seed, layer, threshold, drop_scale = dropout
    if node_id is not None:
        node = tl.load(node_id + row, mask=row < num_rows, other=0)
        keep = kept_tile(node, first_column, seed, tl.load(epoch), layer, threshold, y.shape[1])
        y = tl.where(keep, y * tl.full([1, 1], drop_scale, y.dtype), 0.0)
    return y


@triton.jit
def _words(node, group, seed, epoch, layer):
    """The four random words of each (node, group of four columns). ``node`` and ``group`` broadcast against each other.

    In the first rounds, a number that depends on only one of the two is computed once and then broadcast.
    """
    counter = (
        tl.cast(node, tl.uint32),
        tl.cast(group, tl.uint32),
        tl.cast(layer, tl.uint32),
        tl.cast(epoch, tl.uint32),
    )
    return tl.philox(tl.cast(seed, tl.int64), counter[0], counter[1], counter[2], counter[3])


@triton.jit
def _dropout(
    x,
    out,
    x_stride,
    out_stride,
    num_rows: tl.int64,
    num_columns,
    node_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write the dropout of ``x`` to ``out``. Strides and the number of columns are in units, see ``vector_unit``."""
    x_stride *= UNIT
    out_stride *= UNIT
    num_columns *= UNIT
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    first_column = tl.program_id(1) * COLUMNS
    column = first_column + tl.arange(0, COLUMNS)[None, :]
    inside = (row < num_rows)[:, None] & (column < num_columns)
    y = tl.load(x + row[:, None] * x_stride + column, mask=inside, other=0.0)
    if y.dtype == tl.bfloat16 or y.dtype == tl.float16:
        y = y.to(tl.float32)
    y = drop(y, row, num_rows, first_column, (node_id, epoch, seed, layer, threshold, drop_scale))
    tl.store(out + row[:, None] * out_stride + column, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _drop_entries(
    values,
    row,
    column,
    out,
    num_entries: tl.int64,
    node_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
    ELEMENTS: tl.constexpr,
):
    """Write the dropout of the stored entries of a sparse matrix to ``out``."""
    entry = tl.program_id(0).to(tl.int64) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = entry < num_entries
    node = tl.load(node_id + tl.load(row + entry, mask=inside, other=0), mask=inside, other=0)
    keep = kept(node, tl.load(column + entry, mask=inside, other=0), seed, tl.load(epoch), layer, threshold)
    value = tl.load(values + entry, mask=inside, other=0.0)
    scaled = value * tl.full([1], drop_scale, value.dtype)
    tl.store(out + entry, tl.where(keep, scaled, 0.0), mask=inside)


def signed(seed: int) -> int:
    """The low 64 bits of ``seed`` as a signed integer."""
    return (seed + 2**63) % 2**64 - 2**63
