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

EPILOGUE_TYPES = {"scale": "*fp32:16", "bias": "*fp32:16", **STREAM_TYPES}
"""The signature of an epilogue that has every part, in float32, for ``variants``; ``relu`` is a constant."""

NO_STREAM = {"node_id": None, "epoch": None}
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


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """None: there is no kernel here, only a part of others."""
    yield from ()
