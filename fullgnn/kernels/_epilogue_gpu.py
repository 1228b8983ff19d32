"""The ``Epilogue`` inside a kernel for GPUs. Importing this module imports triton."""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn._philox_gpu import STREAM_TYPES, drop, stream
from fullgnn.kernels.base import Epilogue

ELEMENTS = 1024  # of the tile of a program
MAX_COLUMNS = 128  # of it


def arguments(epilogue: Epilogue) -> tuple[Any, ...]:
    """What ``store_rows`` is told: scale, bias, relu, and the stream of the dropout."""

    def plain(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.detach().contiguous()

    return plain(epilogue.scale), plain(epilogue.bias), epilogue.relu, *stream(epilogue.dropout)


def apply_gpu(y: Tensor, epilogue: Epilogue) -> Tensor:
    """``Epilogue.apply_`` in one pass; the columns of ``y`` are contiguous."""
    num_rows, width = y.shape
    if y.numel():
        columns = min(MAX_COLUMNS, max(4, triton.next_power_of_2(width)))
        rows = ELEMENTS // columns
        grid = (triton.cdiv(num_rows, rows), triton.cdiv(width, columns))
        is_wide = num_rows * y.stride(0) + MAX_COLUMNS >= 2**31
        _finish[grid](y, num_rows, width, y.stride(0), *arguments(epilogue), rows, columns, is_wide)
    return y


@triton.jit(do_not_specialize=["num_rows", "width", "stride"])
def _finish(
    y,
    num_rows,
    width,
    stride,
    scale,
    bias,
    RELU: tl.constexpr,
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
    store_rows(nothing, row, num_rows, tl.program_id(1) * COLUMNS, width, y, stride, scale, bias, RELU,
               node_id, epoch, seed, layer, threshold, drop_scale, True, WIDE)  # fmt: skip


@triton.jit
def store_rows(
    y,  # [ROWS, COLUMNS] sums
    row,  # [ROWS] int32 of ``out``; num_rows: none
    num_rows,
    first_column,  # a multiple of 4
    width,
    out,  # (num_rows, width)
    out_stride,
    scale,  # (num_rows,), or None
    bias,  # (width,), or None
    RELU: tl.constexpr,
    node_id,  # from here to drop_scale: see ``drop``
    epoch,
    seed,
    layer,
    threshold,
    drop_scale,
    ACCUMULATE: tl.constexpr,
    WIDE: tl.constexpr,  # offsets pass 2^31
):
    """Store dropout(relu(scale (y + out) + bias)) to some rows of ``out``; see ``Epilogue`` in ``base.py``."""
    there = row < num_rows
    column = first_column + tl.arange(0, y.shape[1])
    within = there[:, None] & (column < width)[None, :]
    offset = row.to(tl.int64) * out_stride if WIDE else row * out_stride
    to = out + offset[:, None] + column[None, :]
    if ACCUMULATE:
        y += tl.load(to, mask=within, other=0)
    if scale is not None:
        y *= tl.load(scale + row, mask=there, other=0)[:, None]
    if bias is not None:
        y += tl.load(bias + column, mask=column < width, other=0)[None, :]
    if RELU:
        y = tl.where(y < 0, 0.0, y)  # a NaN stays one
    y = drop(y, row, num_rows, first_column, node_id, epoch, seed, layer, threshold, drop_scale)
    tl.store(to, y, mask=within)


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """What is compiled: (kernel, signature, constants, options) of representative calls."""
    for dtype in ("fp32", "fp64"):
        signature = {"y": f"*{dtype}:16", "scale": f"*{dtype}:16", "bias": f"*{dtype}:16", **STREAM_TYPES}
        signature |= dict.fromkeys(("num_rows", "width", "stride"), "i32")
        yield _finish, signature, dict(RELU=True, ROWS=8, COLUMNS=128, WIDE=dtype == "fp64"), {"num_warps": 4}
