"""Products with values per edge on a GPU, for ``weighted.py``. Importing this module imports Triton.

The programs are those of ``_attention_gpu.py``.
"""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.edges._attention_gpu import (
    columns_of,
    load_heads,
    load_rows,
    row_lanes,
    shape_of,
    variant_shapes,
)
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.gpu import vector_unit


def weighted_sum_gpu(
    indptr: Tensor, indices: Tensor, places: Tensor | None, values: Tensor, x: Tensor, out: Tensor
) -> None:
    """Add, to each row of ``out``, the rows ``indices[e]`` of X, weighted head by head, for its edges e.

    Args:
        places: (E,) int32 row of ``values`` of each edge; None: the edge itself.
        values: (E, K), contiguous.
        x: contiguous rows.
        out: (num_rows, K * D), contiguous.
    """
    num_heads, num_rows = values.shape[1], len(indptr) - 1
    grid, shape = shape_of(num_rows, len(indices), num_heads, x.shape[1] // num_heads)
    unit = vector_unit(x, x.stride(0))
    weighted_sum[grid](indptr, indices, num_rows, places, values, x, x.stride(0) // unit, out, UNIT=unit, **shape)


def edge_dots_gpu(csr: LocalCSR, of_rows: Tensor, x: Tensor, out: Tensor) -> None:
    """Write to (E, K) ``out`` the dot products of the rows of each edge's target, contiguous, and source."""
    num_heads = out.shape[1]
    grid, shape = shape_of(csr.num_rows, csr.nnz, num_heads, x.shape[1] // num_heads)
    unit = vector_unit(x, x.stride(0))
    arguments = (csr.indptr, csr.indices, csr.num_rows, of_rows, x, x.stride(0) // unit, out)
    edge_dots[grid](*arguments, UNIT=unit, **shape)


@triton.jit(do_not_specialize=["num_rows"])
def weighted_sum(
    indptr,  # (n + 1,) int32
    indices,  # (E,) int32
    num_rows,
    places,  # (E,) int32; None: edges are their own places
    values,  # (E, K)
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    out,  # (n, K * D)
    K: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    DEPTH: tl.constexpr,
    EVEN: tl.constexpr,
    UNIT: tl.constexpr,
):
    """Add the weighted rows of X of some rows' edges to ``out``."""
    row, exists, edge, last = row_lanes(indptr, num_rows, ROWS, EDGES)
    head, has_head, column, within = columns_of(K, D, HEADS, DEPTH)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    lane_sum = tl.zeros((ROWS * EDGES, HEADS, DEPTH), x.dtype.element_ty)
    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        place = edge if places is None else tl.load(places + edge, mask=here, other=0)
        weight = load_heads(values, place.to(tl.int64), head, here, has_head, K)
        lane_sum += weight[:, :, None] * load_rows(x, source, stride, column, here, within, EVEN)
        edge += EDGES
        source = ahead
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.sum(tl.reshape(lane_sum, (ROWS, EDGES, HEADS, DEPTH)), 1)
    place_of_row = out + (row * (K * D))[:, None, None] + column[None, :, :]
    mask = (row < num_rows)[:, None, None] & within[None, :, :]
    tl.store(place_of_row, tl.load(place_of_row, mask=mask, other=0) + total, mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def edge_dots(
    indptr,  # (n + 1,) int32
    indices,  # (E,) int32
    num_rows,
    of_rows,  # (n, K * D)
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    out,  # (E, K)
    K: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    DEPTH: tl.constexpr,
    EVEN: tl.constexpr,
    UNIT: tl.constexpr,
):
    """Write the dot products of the two rows of some rows' edges, head by head."""
    row, exists, edge, last = row_lanes(indptr, num_rows, ROWS, EDGES)
    head, has_head, column, within = columns_of(K, D, HEADS, DEPTH)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    of_row = load_rows(of_rows, row, K * D, column, exists, within, EVEN)
    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        dots = tl.sum(load_rows(x, source, stride, column, here, within, EVEN) * of_row, 2)
        place = out + (edge.to(tl.int64) * K)[:, None] + head[None, :]
        tl.store(place, dots, mask=here[:, None] & has_head[None, :])
        edge += EDGES
        source = ahead


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """Variants to compile: (kernel, signature, constants, options) of representative calls."""
    for number, dtype, shape, *_ in variant_shapes():
        number_type, options = f"*{dtype}:16", {"num_warps": 4}
        common = {"indptr": "*i32:16", "num_rows": "i32", "out": number_type}
        of_rows = common | {"indices": "*i32:16", "x": number_type, "x_stride": "i32"}
        moved = {"places": "*i32:16"} if number % 2 else {}
        constants = shape if number % 2 else shape | {"places": None}
        yield weighted_sum, of_rows | moved | {"values": number_type}, constants, options
        yield edge_dots, of_rows | {"of_rows": number_type}, shape, options
