"""The ``Epilogue`` inside a kernel for GPUs. Importing this module imports triton."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn._philox_gpu import drop, stream
from fullgnn.kernels.base import Epilogue

Arguments = tuple[Any, ...]


def arguments(epilogue: Epilogue) -> Arguments:
    """What ``store_rows`` is told: scale, bias, relu, and the stream of the dropout."""

    def plain(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.detach().contiguous()

    return plain(epilogue.scale), plain(epilogue.bias), epilogue.relu, *stream(epilogue.dropout)


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
