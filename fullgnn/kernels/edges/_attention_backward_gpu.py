"""The gradients of attention over a stage on a GPU, for ``attention.py``. Importing this module imports Triton.

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
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.row_bins import EdgeItems, bins_of
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import zero_padded
from fullgnn.kernels.support.gpu import in_vectors


def attend_backward_gpu(
    csr: LocalCSR,
    transposed: Transposed,
    logit_source: Tensor,
    x: Tensor,
    slope: float,
    mask: EdgeMask | None,
    rows: AttentionRows,
) -> tuple[Tensor, Tensor]:
    """See :func:`fullgnn.kernels.edges.attention.attend_backward`; the rows of ``x`` are contiguous."""
    num_heads, logit_source, x, grad = logit_source.shape[1], logit_source.contiguous(), in_vectors(x), rows.grad_lines
    depth = x.shape[1] // num_heads

    def launch(
        kernel: Any, items: EdgeItems, edges: Tensor, values: Tensor | None, *out: Tensor, **constants: Any
    ) -> None:
        sizes = (len(items.begin), items.most, num_heads, depth)
        grid, shape = shape_of(*sizes, x, *_numbers(kernel, has_dropout=mask is not None))
        strides = (x.stride(0) // shape["UNIT"], grad.stride(0) // shape["UNIT"])
        matrices = (logit_source, x, strides[0], slope, rows.table, grad, strides[1])
        factors = factor_arguments(values, mask)
        kernel[grid](*item_arguments(items), edges, *matrices, *out, *factors, **constants, **shape)

    found, of_targets = bins_of(csr), rows.grad_logit_target
    if found.parts is not None:
        sums = x.new_zeros(len(found.parts.begin), num_heads)
        launch(target_gradients, found.parts, csr.indices, csr.values, sums, PARTS=True)
        found.add_parts(sums, of_targets, accumulate=True)
    for items in reversed(found.bins):  # the longest first
        launch(target_gradients, items, csr.indices, csr.values, of_targets, PARTS=False)

    found, outputs = bins_of(transposed), (logit_source.new_empty(logit_source.shape), x.new_empty(x.shape))
    edges = (transposed.targets, transposed.values)
    if found.parts is not None:
        num_parts = len(found.parts.begin)
        sums_of = (x.new_empty(num_parts, num_heads), zero_padded(num_parts, x.shape[1], like=x))
        launch(source_gradients, found.parts, *edges, *sums_of, PARTS=True, OUT_STRIDE=sums_of[1].stride(0))
        for sums, out in zip(sums_of, outputs):
            found.add_parts(sums, out, accumulate=False)
    for items in reversed(found.bins):
        launch(source_gradients, items, *edges, *outputs, PARTS=False, OUT_STRIDE=x.shape[1])
    return outputs


def _numbers(kernel: Any, has_dropout: bool) -> tuple[int, int | None]:
    """``numbers`` and ``registers`` of ``shape_of``, with which at least five programs run on a multiprocessor. A lane
    of ``source_gradients`` holds two rows."""
    return 16 if kernel is target_gradients and not has_dropout else 8, 96 if has_dropout else None


@triton.jit
def load_table(table, row, head, exists, read, K: tl.constexpr):
    """The four [LANES, VECTORS] numbers of ``AttentionRows.table``: logit_target, maximum, 1 / total and dot."""
    logit, top = (
        load_heads(table, row, 4 * K, head, exists, read),
        load_heads(table + K, row, 4 * K, head, exists, read),
    )
    inverse = load_heads(table + 2 * K, row, 4 * K, head, exists, read)
    return logit, top, inverse, load_heads(table + 3 * K, row, 4 * K, head, exists, read)


@triton.jit(do_not_specialize=["num_items", "x_stride", "grad_stride"])
def target_gradients(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    rows,  # (num_items,) int32 target of each item; None: 0, 1, ...
    num_items,
    indices,  # (E,) int32
    logit_source,  # (m, K)
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 4 * K)
    grad,  # (n, K * D)
    grad_stride,  # in units of UNIT
    grad_logit_target,  # (n, K), to which the gradients are added; with PARTS, (num_items, K)
    edge_weight,  # (E,); None: all 1
    target_id,  # None for no dropout
    source_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
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
    """Add the gradients of the logits of some targets."""
    row, exists, edge, last = item_lanes(begin, end, rows, num_items, ROWS, EDGES)
    head, read, is_first, column, within = columns_of(K, D, HEADS, DEPTH, UNIT)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    of_target, top, inverse, dot = load_table(table, row, head, exists & (edge < last), read, K)
    of_grad = load_rows(grad, row, tl.cast(grad_stride, tl.int64) * UNIT, column, exists, read, EVEN)
    of_grad = own_columns(of_grad, within, D, UNIT)
    gradient = tl.zeros((ROWS * EDGES, HEADS * DEPTH // UNIT), x.dtype.element_ty)
    if target_id is not None:
        id_of_target = tl.load(target_id + row, mask=exists, other=0)
    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        of_source = own_columns(load_rows(x, source, stride, column, here, read, EVEN), within, D, UNIT)
        logit = load_heads(logit_source, source, K, head, here, read) + of_target
        weight = tl.exp(tl.minimum(sloped(logit, logit, slope) - top, 0.0)) * inverse
        of_weight = sum_of_heads(of_source * of_grad, HEADS)
        if edge_weight is not None:
            of_weight *= load_weights(edge_weight, edge, here)
        if target_id is not None:
            id_of_source = tl.load(source_id + source, mask=here, other=0)
            of_weight = drop_weights(of_weight, id_of_target, id_of_source, head, epoch, seed, layer, threshold,
                                     drop_scale, HEADS)  # fmt: skip
        of_edge = sloped(weight * (of_weight - dot), logit, slope)
        gradient += tl.where(here[:, None], of_edge, 0.0)
        edge += EDGES
        source = ahead
    total = sum_of_lanes(gradient, ROWS, EDGES)
    row, exists = written_rows(rows, num_items, ROWS, PARTS)
    place = grad_logit_target + (row * K)[:, None] + head[None, :]
    mask = exists[:, None] & is_first[None, :]
    tl.store(place, tl.load(place, mask=mask, other=0) + total, mask=mask)


@triton.jit(do_not_specialize=["num_items", "x_stride", "grad_stride"])
def source_gradients(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    rows,  # (num_items,) int32 source of each item; None: 0, 1, ...
    num_items,
    targets,  # (E,) int32
    logit_source,  # (m, K)
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 4 * K)
    grad,  # (n, K * D)
    grad_stride,  # in units of UNIT
    grad_logit_source,  # (m, K); with PARTS, (num_items, K)
    grad_x,  # (m, K * D); with PARTS, (num_items, K * D)
    edge_weight,  # (E,); None: all 1
    target_id,  # None for no dropout
    source_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
    OUT_STRIDE: tl.constexpr,  # of grad_x
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
    """Write the gradients of the logits and rows of some sources."""
    row, exists, edge, last = item_lanes(begin, end, rows, num_items, ROWS, EDGES)
    head, read, is_first, column, within = columns_of(K, D, HEADS, DEPTH, UNIT)
    stride, grads = tl.cast(x_stride, tl.int64) * UNIT, tl.cast(grad_stride, tl.int64) * UNIT
    of_source = load_heads(logit_source, row, K, head, exists, read)
    of_x = own_columns(load_rows(x, row, stride, column, exists, read, EVEN), within, D, UNIT)
    gradient = tl.zeros((ROWS * EDGES, HEADS * DEPTH // UNIT), x.dtype.element_ty)
    lane_sum = tl.zeros((ROWS * EDGES, HEADS * DEPTH // UNIT, UNIT), x.dtype.element_ty)
    if target_id is not None:
        id_of_source = tl.load(source_id + row, mask=exists, other=0)
    target = tl.load(targets + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(targets + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        of_grad = own_columns(load_rows(grad, target, grads, column, here, read, EVEN), within, D, UNIT)
        of_target, top, inverse, dot = load_table(table, target, head, here, read, K)
        logit = of_target + of_source
        weight = tl.exp(tl.minimum(sloped(logit, logit, slope) - top, 0.0)) * inverse
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
        of_edge = sloped(weight * (of_weight - dot), logit, slope)
        gradient += tl.where(here[:, None], of_edge, 0.0)
        lane_sum += changed[:, :, None] * of_grad  # rows of lanes past the last edge are 0
        edge += EDGES
        target = ahead
    row, exists = written_rows(rows, num_items, ROWS, PARTS)
    total = sum_of_lanes(gradient, ROWS, EDGES)
    place = grad_logit_source + (row * K)[:, None] + head[None, :]
    tl.store(place, total, mask=exists[:, None] & is_first[None, :])
    out = grad_x + (row * OUT_STRIDE)[:, None, None] + column[None, :, :]
    tl.store(out, sum_of_lanes(lane_sum, ROWS, EDGES), mask=exists[:, None, None] & within[None, :, :])
