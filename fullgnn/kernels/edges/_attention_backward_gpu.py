"""The gradients of attention over a stage on a GPU, for ``attention.py``. Importing this module imports Triton.

The programs are those of ``_gpu_lanes.py``; the weights and dot products of an edge are computed again. The sums of the
parts of a long row are added level by level.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from functools import partial
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.edges._gpu_lanes import (
    add_to,
    columns_of,
    drop_weights,
    factor_arguments,
    item_arguments,
    item_lanes,
    load_heads,
    load_rows,
    load_weights,
    own_columns,
    score,
    shape_of,
    sloped,
    sum_of_heads,
    sum_of_lanes,
    sum_over_bins,
    written_rows,
)
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.row_bins import EdgeItems, bins_of
from fullgnn.kernels.support.gpu import in_vectors


def attend_backward(
    stage: AttentionStage, transposed: Transposed, rows: AttentionRows, outputs: tuple[Tensor, ...]
) -> None:
    """See :func:`fullgnn.kernels.edges.attention.attend_backward`, whose results are written to ``outputs``. The
    tensors are contiguous, and so are the rows of X."""
    num_heads, dynamic, mask = stage.num_heads, stage.dynamic, stage.mask
    x, grad, x_target = in_vectors(stage.x), rows.grad_lines, rows.target_lines if dynamic else None

    def launch(kernel: Any, edges: Tensor, values: Tensor | None, items: EdgeItems, *out: Tensor, PARTS: bool) -> None:
        limits = _limits(kernel is target_gradients, dynamic, has_dropout=mask is not None)
        grid, shape = shape_of(len(items.begin), items.most, num_heads, stage.depth, x, *limits)
        target_stride, x_stride, grad_stride = (
            0 if matrix is None else matrix.stride(0) // shape["UNIT"] for matrix in (x_target, x, grad)
        )
        kernel[grid](
            *item_arguments(items),
            edges,
            stage.of_sources,
            x_target,
            target_stride,
            x,
            x_stride,
            stage.slope,
            rows.table,
            grad,
            grad_stride,
            *(out if len(out) == 2 else (*out, None)),
            *factor_arguments(values, mask),
            OUT_STRIDE=out[0].stride(0),
            DYNAMIC=dynamic,
            PARTS=PARTS,
            **shape,
        )

    of_targets = partial(launch, target_gradients, stage.csr.indices, stage.csr.values)
    sum_over_bins(bins_of(stage.csr), of_targets, rows.outputs, num_heads, accumulate=True)
    of_sources = partial(launch, source_gradients, transposed.indices, transposed.values)
    sum_over_bins(bins_of(transposed), of_sources, outputs, num_heads, accumulate=False)


def _limits(of_targets: bool, dynamic: bool, has_dropout: bool) -> tuple[int, int | None]:
    """``numbers`` and ``registers`` of ``shape_of``, with which at least five programs run on a multiprocessor. A lane
    of ``source_gradients`` holds two rows; in dynamic attention, a lane holds two rows, two sums and a vector."""
    if dynamic:
        return (4, 96) if has_dropout else (8, None)
    return (8, 96) if has_dropout else (16 if of_targets else 8, None)


@triton.jit
def load_table(table, row, head, exists, read, K: tl.constexpr, DYNAMIC: tl.constexpr):
    """The [LANES, VECTORS] numbers of ``AttentionRows.table``: logit, maximum, 1 / total and dot; with DYNAMIC, there
    is no logit, and the first one is the maximum."""
    FIRST: tl.constexpr = 0 if DYNAMIC else K
    STRIDE: tl.constexpr = FIRST + 3 * K
    logit = load_heads(table, row, STRIDE, head, exists, read)
    top = logit if DYNAMIC else load_heads(table + K, row, STRIDE, head, exists, read)
    inverse = load_heads(table + FIRST + K, row, STRIDE, head, exists, read)
    return logit, top, inverse, load_heads(table + FIRST + 2 * K, row, STRIDE, head, exists, read)


@triton.jit
def gradient_of_ends(grad_logit, ends, slope, DYNAMIC: tl.constexpr):
    """The gradient of ``ends`` for that of the logit of ``score``; with DYNAMIC, the vector is still missing."""
    if DYNAMIC:
        grad_logit = tl.broadcast_to(grad_logit[:, :, None], ends.shape)
    return sloped(grad_logit, ends, slope)


@triton.jit(do_not_specialize=["num_items", "target_stride", "x_stride", "grad_stride"])
def target_gradients(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    rows,  # (num_items,) int32 target of each item; None: 0, 1, ...
    num_items,
    indices,  # (E,) int32
    of_sources,  # (m, K) logits; with DYNAMIC, the (K * D,) vector
    x_target,  # with DYNAMIC, (n, K * D)
    target_stride,  # in units of UNIT
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 4 * K); with DYNAMIC, (n, 3 * K)
    grad,  # (n, K * D)
    grad_stride,  # in units of UNIT
    out,  # (n, K) or, with DYNAMIC, (n, K * D), to which the gradients are added; with PARTS, it has num_items rows
    grad_vector,  # with DYNAMIC, the same, to which the targets' parts are added
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
    DYNAMIC: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Add the gradients of the logits of some targets; with DYNAMIC, those of their rows and their parts of the
    gradient of the vector."""
    row, exists, edge, last = item_lanes(begin, end, rows, num_items, ROWS, EDGES)
    head, read, is_first, column, within = columns_of(K, D, HEADS, DEPTH, UNIT)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    of_target, top, inverse, dot = load_table(table, row, head, exists & (edge < last), read, K, DYNAMIC)
    of_grad = load_rows(grad, row, tl.cast(grad_stride, tl.int64) * UNIT, column, exists, read, EVEN)
    of_grad = own_columns(of_grad, within, D, UNIT)
    vector = None
    if DYNAMIC:
        vector = tl.load(of_sources + column, mask=within, other=0)[None, :, :]
        of_target = load_rows(x_target, row, tl.cast(target_stride, tl.int64) * UNIT, column, exists, read, EVEN)
        of_target = own_columns(of_target, within, D, UNIT)
        lane_vector = tl.zeros((ROWS * EDGES, HEADS * DEPTH // UNIT, UNIT), x.dtype.element_ty)
    lane_sum = tl.zeros(of_target.shape, x.dtype.element_ty)
    if target_id is not None:
        id_of_target = tl.load(target_id + row, mask=exists, other=0)
    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        of_source = own_columns(load_rows(x, source, stride, column, here, read, EVEN), within, D, UNIT)
        if DYNAMIC:
            ends = of_source + of_target
        else:
            ends = load_heads(of_sources, source, K, head, here, read) + of_target
        weight = tl.exp(tl.minimum(score(ends, vector, slope, HEADS, DYNAMIC) - top, 0.0)) * inverse
        grad_weight = sum_of_heads(of_source * of_grad, HEADS)
        if edge_weight is not None:
            grad_weight *= load_weights(edge_weight, edge, here)
        if target_id is not None:
            id_of_source = tl.load(source_id + source, mask=here, other=0)
            grad_weight = drop_weights(grad_weight, id_of_target, id_of_source, head, epoch, seed, layer, threshold,
                                       drop_scale, HEADS)  # fmt: skip
        grad_logit = tl.where(here[:, None], weight * (grad_weight - dot), 0.0)
        gradient = gradient_of_ends(grad_logit, ends, slope, DYNAMIC)
        lane_sum += gradient
        if DYNAMIC:
            lane_vector += gradient * ends
        edge += EDGES
        source = ahead
    row, exists = written_rows(rows, num_items, ROWS, PARTS)
    if DYNAMIC:
        place = (row * OUT_STRIDE)[:, None, None] + column[None, :, :]
        mask = exists[:, None, None] & within[None, :, :]
        add_to(out + place, sum_of_lanes(lane_sum * vector, ROWS, EDGES), mask)
        add_to(grad_vector + place, sum_of_lanes(lane_vector, ROWS, EDGES), mask)
    else:
        place = (row * OUT_STRIDE)[:, None] + head[None, :]
        add_to(out + place, sum_of_lanes(lane_sum, ROWS, EDGES), exists[:, None] & is_first[None, :])


@triton.jit(do_not_specialize=["num_items", "target_stride", "x_stride", "grad_stride"])
def source_gradients(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    rows,  # (num_items,) int32 source of each item; None: 0, 1, ...
    num_items,
    targets,  # (E,) int32
    of_sources,  # (m, K) logits; with DYNAMIC, the (K * D,) vector
    x_target,  # with DYNAMIC, (n, K * D)
    target_stride,  # in units of UNIT
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 4 * K); with DYNAMIC, (n, 3 * K)
    grad,  # (n, K * D)
    grad_stride,  # in units of UNIT
    grad_x,  # (m, K * D); with PARTS, (num_items, K * D)
    grad_of_sources,  # without DYNAMIC, (m, K); with PARTS, (num_items, K)
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
    DYNAMIC: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Write the gradients of the rows of some sources and, without DYNAMIC, of their logits."""
    row, exists, edge, last = item_lanes(begin, end, rows, num_items, ROWS, EDGES)
    head, read, is_first, column, within = columns_of(K, D, HEADS, DEPTH, UNIT)
    of_targets, grads = tl.cast(target_stride, tl.int64) * UNIT, tl.cast(grad_stride, tl.int64) * UNIT
    x_row = load_rows(x, row, tl.cast(x_stride, tl.int64) * UNIT, column, exists, read, EVEN)
    x_row = own_columns(x_row, within, D, UNIT)
    vector = None
    if DYNAMIC:
        vector = tl.load(of_sources + column, mask=within, other=0)[None, :, :]
    else:
        of_source = load_heads(of_sources, row, K, head, exists, read)
        lane_logit = tl.zeros(of_source.shape, x.dtype.element_ty)
    lane_sum = tl.zeros(x_row.shape, x.dtype.element_ty)
    if target_id is not None:
        id_of_source = tl.load(source_id + row, mask=exists, other=0)
    target = tl.load(targets + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(targets + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        of_grad = own_columns(load_rows(grad, target, grads, column, here, read, EVEN), within, D, UNIT)
        of_target, top, inverse, dot = load_table(table, target, head, here, read, K, DYNAMIC)
        if DYNAMIC:
            of_target = own_columns(load_rows(x_target, target, of_targets, column, here, read, EVEN), within, D, UNIT)
            ends = of_target + x_row
        else:
            ends = of_target + of_source
        weight = tl.exp(tl.minimum(score(ends, vector, slope, HEADS, DYNAMIC) - top, 0.0)) * inverse
        grad_weight, changed = sum_of_heads(of_grad * x_row, HEADS), weight
        if edge_weight is not None:
            factor = load_weights(edge_weight, edge, here)
            grad_weight *= factor
            changed *= factor
        if target_id is not None:
            id_of_target = tl.load(target_id + target, mask=here, other=0)
            kept = drop_weights(tl.full(weight.shape, 1, x.dtype.element_ty), id_of_target, id_of_source, head, epoch,
                                seed, layer, threshold, drop_scale, HEADS)  # fmt: skip
            grad_weight *= kept
            changed *= kept
        gradient = gradient_of_ends(weight * (grad_weight - dot), ends, slope, DYNAMIC)
        grad_rows = changed[:, :, None] * of_grad  # of lanes past the last edge, whose weights are 0, they are 0
        if DYNAMIC:
            grad_rows = gradient * vector + grad_rows
        else:
            lane_logit += tl.where(here[:, None], gradient, 0.0)
        lane_sum += grad_rows
        edge += EDGES
        target = ahead
    row, exists = written_rows(rows, num_items, ROWS, PARTS)
    place = grad_x + (row * OUT_STRIDE)[:, None, None] + column[None, :, :]
    tl.store(place, sum_of_lanes(lane_sum, ROWS, EDGES), mask=exists[:, None, None] & within[None, :, :])
    if not DYNAMIC:
        place_of_logit = grad_of_sources + (row * K)[:, None] + head[None, :]
        tl.store(place_of_logit, sum_of_lanes(lane_logit, ROWS, EDGES), mask=exists[:, None] & is_first[None, :])
