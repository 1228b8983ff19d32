"""Products with values per edge on a GPU, for ``weighted.py``. Importing this module imports Triton.

The programs are those of ``_gpu_lanes.py``. The sums of the parts of a long row are added level by level.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.edges._gpu_lanes import (
    add_to,
    columns_of,
    item_arguments,
    item_lanes,
    load_heads,
    load_rows,
    own_columns,
    shape_of,
    sum_of_heads,
    sum_of_lanes,
    sum_over_bins,
    written_rows,
)
from fullgnn.kernels.edges.row_bins import EdgeItems, bins_of
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.gpu import in_vectors


def add_weighted(edges: LocalCSR, places: Tensor | None, values: Tensor, x: Tensor, out: Tensor) -> None:
    """Add, to each row of ``out``, the rows ``indices[e]`` of X, weighted head by head, for its edges e.

    Args:
        places: (E,) int32 row of ``values`` of each edge; None: the edge itself.
        values: (E, K), contiguous.
        x: contiguous rows.
        out: (num_rows, K * D), contiguous.
    """
    num_heads, x = values.shape[1], in_vectors(x)

    def launch(items: EdgeItems, out: Tensor, PARTS: bool) -> None:
        grid, shape = shape_of(len(items.begin), items.most, num_heads, x.shape[1] // num_heads, x)
        rows = (x, x.stride(0) // shape["UNIT"], out)
        weighted_sum[grid](
            *item_arguments(items), edges.indices, places, values, *rows, PARTS=PARTS, OUT_STRIDE=out.stride(0), **shape
        )

    sum_over_bins(bins_of(edges), launch, [out], num_heads, accumulate=True)


def write_dots(csr: LocalCSR, grad_rows: Tensor, x: Tensor, out: Tensor) -> None:
    """Write to (E, K) ``out`` the dot products of the rows of each edge's target, contiguous, and source."""
    num_heads, x, grad_rows, bins = out.shape[1], in_vectors(x), in_vectors(grad_rows), bins_of(csr)
    for items in ([] if bins.parts is None else [bins.parts]) + bins.bins[::-1]:
        grid, shape = shape_of(len(items.begin), items.most, num_heads, x.shape[1] // num_heads, x)
        strides = [matrix.stride(0) // shape["UNIT"] for matrix in (grad_rows, x)]
        rows = (grad_rows, strides[0], x, strides[1], out)
        edge_dots[grid](*item_arguments(items), csr.indices, *rows, **shape)


@triton.jit(do_not_specialize=["num_items", "x_stride"])
def weighted_sum(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    rows,  # (num_items,) int32 row of each item; None: 0, 1, ...
    num_items,
    indices,  # (E,) int32
    places,  # (E,) int32; None: edges are their own places
    values,  # (E, K)
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    out,  # (n, K * D); with PARTS, (num_items, K * D)
    OUT_STRIDE: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    DEPTH: tl.constexpr,
    EVEN: tl.constexpr,
    UNIT: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Add the weighted rows of X of some rows' edges to ``out``."""
    _, _, edge, last = item_lanes(begin, end, rows, num_items, ROWS, EDGES)
    head, read, _, column, within = columns_of(K, D, HEADS, DEPTH, UNIT)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    lane_sum = tl.zeros((ROWS * EDGES, HEADS * DEPTH // UNIT, UNIT), x.dtype.element_ty)
    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        of_source = load_rows(x, source, stride, column, here, read, EVEN)
        place = edge if places is None else tl.load(places + edge, mask=here, other=0)
        weight = load_heads(values, place.to(tl.int64), K, head, here, read)
        lane_sum += weight[:, :, None] * of_source
        edge += EDGES
        source = ahead
    row, exists = written_rows(rows, num_items, ROWS, PARTS)
    place_of_row = out + (row * OUT_STRIDE)[:, None, None] + column[None, :, :]
    add_to(place_of_row, sum_of_lanes(lane_sum, ROWS, EDGES), exists[:, None, None] & within[None, :, :])


@triton.jit(do_not_specialize=["num_items", "row_stride", "x_stride"])
def edge_dots(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    rows,  # (num_items,) int32 row of each item; None: 0, 1, ...
    num_items,
    indices,  # (E,) int32
    grad_rows,  # (n, K * D)
    row_stride,  # in units of UNIT
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
    row, exists, edge, last = item_lanes(begin, end, rows, num_items, ROWS, EDGES)
    head, read, is_first, column, within = columns_of(K, D, HEADS, DEPTH, UNIT)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    grad_row = load_rows(grad_rows, row, tl.cast(row_stride, tl.int64) * UNIT, column, exists, read, EVEN)
    grad_row = own_columns(grad_row, within, D, UNIT)
    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        of_source = own_columns(load_rows(x, source, stride, column, here, read, EVEN), within, D, UNIT)
        place = out + (edge.to(tl.int64) * K)[:, None] + head[None, :]
        tl.store(place, sum_of_heads(of_source * grad_row, HEADS), mask=here[:, None] & is_first[None, :])
        edge += EDGES
        source = ahead
