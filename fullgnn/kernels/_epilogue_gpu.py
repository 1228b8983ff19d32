"""The ``Epilogue`` inside kernels in Triton. Importing this module imports triton.

A kernel that ends with one takes the arguments ``epilogue_arguments(epilogue)`` and calls ``finish`` on its tile.
"""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn._philox_gpu import STREAM_TYPES, drop, stream
from fullgnn.kernels.base import Epilogue

ELEMENTS = 1024  # of the tile of a program that does nothing else
MAX_COLUMNS = 128  # of it

EPILOGUE_TYPES = {"scale": "*fp32:16", "bias": "*fp32:16", **STREAM_TYPES}
"""The signature of an epilogue that has every part, in float32, for ``variants``; ``relu`` is a constant."""

NO_STREAM: dict[str, Any] = {"node_id": None, "epoch": None}
"""The constants of an epilogue without a dropout, instead of these types."""


def epilogue_arguments(epilogue: Epilogue) -> tuple[Any, ...]:
    """scale, bias, relu, and the stream of the dropout, as ``finish`` takes them."""

    def packed(vector: Tensor | None) -> Tensor | None:
        return None if vector is None else vector.contiguous()

    return packed(epilogue.scale), packed(epilogue.bias), epilogue.relu, *stream(epilogue.dropout)


@triton.jit
def finish(
    y,
    row,
    num_rows,
    first_column,
    num_columns,
    scale,
    bias,
    relu: tl.constexpr,
    node_id,
    epoch,
    seed,
    layer,
    threshold,
    drop_scale,
):
    """The [ROWS, COLUMNS] tile ``y`` of the [ROWS] int64 ``row`` and the columns from ``first_column`` on, a multiple
    of 4, after the epilogue; what lies outside the matrix is undefined."""
    if scale is not None:
        y = y * tl.load(scale + row, mask=row < num_rows, other=0.0)[:, None]
    if bias is not None:
        column = first_column + tl.arange(0, y.shape[1])
        y = y + tl.load(bias + column, mask=column < num_columns, other=0.0)[None, :]
    if relu:
        y = tl.where(y <= 0, 0.0, y)  # not a maximum, which would hide a nan
    return drop(y, row, num_rows, first_column, node_id, epoch, seed, layer, threshold, drop_scale)


@triton.jit
def store_rows(
    y,  # [ROWS, COLUMNS] sums
    row,  # [ROWS] int32 of ``out``; num_rows: none
    num_rows,
    first_column,  # a multiple of 4
    width,
    out,  # (num_rows, width)
    out_stride,
    scale,  # from here to drop_scale: see ``finish``
    bias,
    relu: tl.constexpr,
    node_id,
    epoch,
    seed,
    layer,
    threshold,
    drop_scale,
    ACCUMULATE: tl.constexpr,
    WIDE: tl.constexpr,  # offsets pass 2^31
):
    """Store ``y``, or y + out, after the epilogue to some rows of ``out``."""
    column = first_column + tl.arange(0, y.shape[1])
    within = (row < num_rows)[:, None] & (column < width)[None, :]
    offset = row.to(tl.int64) * out_stride if WIDE else row * out_stride
    to = out + offset[:, None] + column[None, :]
    if ACCUMULATE:
        y += tl.load(to, mask=within, other=0)
    y = finish(y, row, num_rows, first_column, width, scale, bias, relu,
               node_id, epoch, seed, layer, threshold, drop_scale)  # fmt: skip
    tl.store(to, y, mask=within)


def apply_gpu(y: Tensor, epilogue: Epilogue) -> Tensor:
    """``Epilogue.apply_`` in one pass; the columns of ``y`` are contiguous."""
    num_rows, width = y.shape
    if y.numel():
        columns = min(MAX_COLUMNS, max(4, triton.next_power_of_2(width)))
        rows = ELEMENTS // columns
        grid = (triton.cdiv(num_rows, rows), triton.cdiv(width, columns))
        is_wide = num_rows * y.stride(0) + MAX_COLUMNS >= 2**31
        _apply[grid](y, num_rows, width, y.stride(0), *epilogue_arguments(epilogue), rows, columns, is_wide)
    return y


@triton.jit(do_not_specialize=["num_rows", "width", "stride"])
def _apply(
    y,
    num_rows,
    width,
    stride,
    scale,
    bias,
    relu: tl.constexpr,
    node_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    nothing = tl.zeros((ROWS, COLUMNS), y.dtype.element_ty)
    store_rows(nothing, row, num_rows, tl.program_id(1) * COLUMNS, width, y, stride, scale, bias, relu,
               node_id, epoch, seed, layer, threshold, drop_scale, True, WIDE)  # fmt: skip


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """What is compiled: (kernel, signature, constants, options) of representative calls."""
    for dtype in ("fp32", "fp64"):
        signature = {"y": f"*{dtype}:16", "scale": f"*{dtype}:16", "bias": f"*{dtype}:16", **STREAM_TYPES}
        signature |= dict.fromkeys(("num_rows", "width", "stride"), "i32")
        yield _apply, signature, dict(relu=True, ROWS=8, COLUMNS=128, WIDE=dtype == "fp64"), {"num_warps": 4}
