"""The gradients of dynamic attention over a stage on a GPU, for ``dynamic_attention.py``. Importing this module imports
Triton.

The programs are those of ``_gpu_lanes.py``; the weights and dot products of an edge are computed again. The sums of the
parts of a long row are added level by level.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.edges._gpu_lanes import (
    columns_of,
    drop_weights,
    factor_arguments,
    item_arguments,
    item_lanes,
    load_heads,
    load_rows,
    load_weights,
    own_columns,
    shape_of,
    sloped,
    sum_of_heads,
    sum_of_lanes,
    written_rows,
)
from fullgnn.kernels.edges.dynamic_rows import DynamicRows
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.row_bins import EdgeItems, bins_of
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import zero_padded
from fullgnn.kernels.support.gpu import in_vectors

SHAPE, SHAPE_WITH_DROPOUT = (8, None), (4, 96)
"""``numbers`` and ``registers`` of ``shape_of``, with which five programs run on a multiprocessor: a lane holds two
rows, two sums and a vector."""


def attend_dynamic_backward_gpu(
    csr: LocalCSR,
    transposed: Transposed,
    x: Tensor,
    vector: Tensor,
    slope: float,
    mask: EdgeMask | None,
    rows: DynamicRows,
) -> Tensor:
    """See :func:`fullgnn.kernels.edges.dynamic_attention.attend_dynamic_backward`; the rows of ``x`` are contiguous."""
    (num_heads, depth), width, x = vector.shape, x.shape[1], in_vectors(x)
    limits = SHAPE if mask is None else SHAPE_WITH_DROPOUT

    def launch(
        kernel: Any, items: EdgeItems, edges: Tensor, values: Tensor | None, *out: Tensor, **constants: Any
    ) -> None:
        grid, shape = shape_of(len(items.begin), items.most, num_heads, depth, x, *limits)
        strides = [one.stride(0) // shape["UNIT"] for one in (rows.target_lines, x, rows.grad_lines)]
        matrices = (
            vector,
            rows.target_lines,
            strides[0],
            x,
            strides[1],
            slope,
            rows.table,
            rows.grad_lines,
            strides[2],
        )
        factors = factor_arguments(values, mask)
        kernel[grid](
            *item_arguments(items), edges, *matrices, *out, *factors, OUT_STRIDE=out[0].stride(0), **constants, **shape
        )

    found, of_targets = bins_of(csr), (rows.grad_x_target, rows.grad_vector)
    if found.parts is not None:
        parts = [zero_padded(len(found.parts.begin), width, like=x).zero_() for _ in of_targets]
        launch(dynamic_target_gradients, found.parts, csr.indices, csr.values, *parts, PARTS=True)
        for sums, out in zip(parts, of_targets):
            found.add_parts(sums, out, accumulate=True)
    for items in reversed(found.bins):  # the longest first
        launch(dynamic_target_gradients, items, csr.indices, csr.values, *of_targets, PARTS=False)

    found, grad_x = bins_of(transposed), x.new_empty(x.shape)
    edges = (transposed.targets, transposed.values)
    if found.parts is not None:
        sums = zero_padded(len(found.parts.begin), width, like=x)
        launch(dynamic_source_gradients, found.parts, *edges, sums, PARTS=True)
        found.add_parts(sums, grad_x, accumulate=False)
    for items in reversed(found.bins):
        launch(dynamic_source_gradients, items, *edges, grad_x, PARTS=False)
    return grad_x


@triton.jit
def load_table(table, row, head, exists, read, K: tl.constexpr):
    """The three [LANES, VECTORS] numbers of ``DynamicRows.table``: maximum, 1 / total and dot."""
    top, inverse = (
        load_heads(table, row, 3 * K, head, exists, read),
        load_heads(table + K, row, 3 * K, head, exists, read),
    )
    return top, inverse, load_heads(table + 2 * K, row, 3 * K, head, exists, read)


@triton.jit(do_not_specialize=["num_items", "target_stride", "x_stride", "grad_stride"])
def dynamic_target_gradients(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    rows,  # (num_items,) int32 target of each item; None: 0, 1, ...
    num_items,
    indices,  # (E,) int32
    vector,  # (K * D,)
    x_target,  # (n, K * D)
    target_stride,  # in units of UNIT
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 3 * K)
    grad,  # (n, K * D)
    grad_stride,  # in units of UNIT
    grad_x_target,  # (n, K * D), to which the gradients are added; with PARTS, (num_items, K * D)
    grad_vector,  # the same, to which the targets' parts are added
    edge_weight,  # (E,); None: all 1
    target_id,  # None for no dropout
    source_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
    OUT_STRIDE: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    DEPTH: tl.constexpr,
    EVEN: tl.constexpr,  # all columns of all programs exist
    UNIT: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Add the gradients of the rows of some targets, and their parts of the gradient of the vector."""
    row, exists, edge, last = item_lanes(begin, end, rows, num_items, ROWS, EDGES)
    head, read, _, column, within = columns_of(K, D, HEADS, DEPTH, UNIT)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    top, inverse, dot = load_table(table, row, head, exists & (edge < last), read, K)
    factors = tl.load(vector + column, mask=within, other=0)[None, :, :]
    of_target = own_columns(
        load_rows(x_target, row, tl.cast(target_stride, tl.int64) * UNIT, column, exists, read, EVEN), within, D, UNIT
    )
    of_grad = own_columns(
        load_rows(grad, row, tl.cast(grad_stride, tl.int64) * UNIT, column, exists, read, EVEN), within, D, UNIT
    )
    lane_sum = tl.zeros((ROWS * EDGES, HEADS * DEPTH // UNIT, UNIT), x.dtype.element_ty)
    lane_vector = tl.zeros((ROWS * EDGES, HEADS * DEPTH // UNIT, UNIT), x.dtype.element_ty)
    if target_id is not None:
        id_of_target = tl.load(target_id + row, mask=exists, other=0)
    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        of_source = own_columns(load_rows(x, source, stride, column, here, read, EVEN), within, D, UNIT)
        ends = of_source + of_target
        logit = sum_of_heads(sloped(ends, ends, slope) * factors, HEADS)
        weight = tl.exp(tl.minimum(logit - top, 0.0)) * inverse
        of_weight = sum_of_heads(of_source * of_grad, HEADS)
        if edge_weight is not None:
            of_weight *= load_weights(edge_weight, edge, here)
        if target_id is not None:
            id_of_source = tl.load(source_id + source, mask=here, other=0)
            of_weight = drop_weights(of_weight, id_of_target, id_of_source, head, epoch, seed, layer, threshold,
                                     drop_scale, HEADS)  # fmt: skip
        of_logit = tl.where(here[:, None], weight * (of_weight - dot), 0.0)[:, :, None]
        gradient = sloped(tl.broadcast_to(of_logit, (ROWS * EDGES, HEADS * DEPTH // UNIT, UNIT)), ends, slope)
        lane_sum += gradient
        lane_vector += gradient * ends
        edge += EDGES
        source = ahead
    total = sum_of_lanes(lane_sum * factors, ROWS, EDGES)
    of_vector = sum_of_lanes(lane_vector, ROWS, EDGES)
    row, exists = written_rows(rows, num_items, ROWS, PARTS)
    place = (row * OUT_STRIDE)[:, None, None] + column[None, :, :]
    mask = exists[:, None, None] & within[None, :, :]
    tl.store(grad_x_target + place, tl.load(grad_x_target + place, mask=mask, other=0) + total, mask=mask)
    tl.store(grad_vector + place, tl.load(grad_vector + place, mask=mask, other=0) + of_vector, mask=mask)


@triton.jit(do_not_specialize=["num_items", "target_stride", "x_stride", "grad_stride"])
def dynamic_source_gradients(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    rows,  # (num_items,) int32 source of each item; None: 0, 1, ...
    num_items,
    targets,  # (E,) int32
    vector,  # (K * D,)
    x_target,  # (n, K * D)
    target_stride,  # in units of UNIT
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 3 * K)
    grad,  # (n, K * D)
    grad_stride,  # in units of UNIT
    grad_x,  # (m, K * D); with PARTS, (num_items, K * D)
    edge_weight,  # (E,); None: all 1
    target_id,  # None for no dropout
    source_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
    OUT_STRIDE: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    DEPTH: tl.constexpr,
    EVEN: tl.constexpr,  # all columns of all programs exist
    UNIT: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Write the gradients of the rows of some sources."""
    row, exists, edge, last = item_lanes(begin, end, rows, num_items, ROWS, EDGES)
    head, read, _, column, within = columns_of(K, D, HEADS, DEPTH, UNIT)
    of_targets, grads = tl.cast(target_stride, tl.int64) * UNIT, tl.cast(grad_stride, tl.int64) * UNIT
    factors = tl.load(vector + column, mask=within, other=0)[None, :, :]
    of_x = own_columns(
        load_rows(x, row, tl.cast(x_stride, tl.int64) * UNIT, column, exists, read, EVEN), within, D, UNIT
    )
    lane_sum = tl.zeros((ROWS * EDGES, HEADS * DEPTH // UNIT, UNIT), x.dtype.element_ty)
    if target_id is not None:
        id_of_source = tl.load(source_id + row, mask=exists, other=0)
    target = tl.load(targets + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(targets + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        top, inverse, dot = load_table(table, target, head, here, read, K)
        ends = own_columns(load_rows(x_target, target, of_targets, column, here, read, EVEN), within, D, UNIT) + of_x
        logit = sum_of_heads(sloped(ends, ends, slope) * factors, HEADS)
        weight = tl.exp(tl.minimum(logit - top, 0.0)) * inverse
        of_grad = own_columns(load_rows(grad, target, grads, column, here, read, EVEN), within, D, UNIT)
        of_weight, changed = sum_of_heads(of_grad * of_x, HEADS), weight
        if edge_weight is not None:
            factor = load_weights(edge_weight, edge, here)
            of_weight *= factor
            changed *= factor
        if target_id is not None:
            id_of_target = tl.load(target_id + target, mask=here, other=0)
            kept = drop_weights(tl.full(weight.shape, 1, x.dtype.element_ty), id_of_target, id_of_source, head, epoch,
                                seed, layer, threshold, drop_scale, HEADS)  # fmt: skip
            of_weight *= kept
            changed *= kept
        of_logit = (weight * (of_weight - dot))[:, :, None]  # the weights of lanes past the last edge are 0
        gradient = sloped(tl.broadcast_to(of_logit, (ROWS * EDGES, HEADS * DEPTH // UNIT, UNIT)), ends, slope)
        lane_sum += gradient * factors + changed[:, :, None] * of_grad
        edge += EDGES
        target = ahead
    row, exists = written_rows(rows, num_items, ROWS, PARTS)
    total = sum_of_lanes(lane_sum, ROWS, EDGES)
    out = grad_x + (row * OUT_STRIDE)[:, None, None] + column[None, :, :]
    tl.store(out, total, mask=exists[:, None, None] & within[None, :, :])
