"""Attention over a stage of edges on a GPU, for ``attention.py``. Importing this module imports Triton.

The programs are those of ``_gpu_lanes.py``, where every lane has the state of a softmax. Each part of a long row gets a
state of its own. These states are added to the state of the row like edges, with their maxima as logits.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from itertools import pairwise
from typing import Any

import torch
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
    score,
    shape_of,
    sum_of_lanes,
    written_rows,
)
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.row_bins import EdgeItems, bins_of
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.spmm.triton_csr import Items
from fullgnn.kernels.support.aligned import zero_padded
from fullgnn.kernels.support.gpu import in_vectors

NO_FACTORS = factor_arguments(None, None)


def attend(stage: AttentionStage, of_targets: Tensor, state: SoftmaxState) -> None:
    """See :func:`fullgnn.kernels.edges.attention.attend`; the tensors are contiguous, and so are the rows of X."""
    csr, dynamic = stage.csr, stage.dynamic
    of_targets = in_vectors(of_targets) if dynamic else of_targets
    of_edges = (stage.of_sources, of_targets, in_vectors(stage.x), stage.slope)
    factors = factor_arguments(csr.values, stage.mask)
    bins, constants = bins_of(csr), {"DYNAMIC": dynamic, "STATES": False}
    if bins.parts is not None:
        states = _empty(len(bins.parts.begin), state)
        _launch(bins.parts, csr.indices, of_edges, states, factors, constants | {"PARTS": True})
        _join(bins.levels, states, state)
    for items in reversed(bins.bins):  # the longest first
        _launch(items, csr.indices, of_edges, state, factors, constants | {"PARTS": False})


def _join(levels: tuple[Items, ...], states: SoftmaxState, state: SoftmaxState) -> None:
    """Add the ``states`` of parts of rows to the ``state`` of the rows, level by level."""
    for parts, level in pairwise(levels):
        joined = state if level is levels[-1] else _empty(len(level.target), state)
        of_states, constants = (states.maximum, states.total, states.weighted, 0.0), {"DYNAMIC": False, "STATES": True}
        items = EdgeItems(level.begin, level.end, level.target, level.most)
        _launch(items, parts.target, of_states, joined, NO_FACTORS, constants | {"PARTS": False})
        states = joined


def _empty(num_parts: int, like: SoftmaxState) -> SoftmaxState:
    """The states of parts without edges; the weighted sums begin at multiples of 16 bytes."""
    (num_heads, width), numbers = (like.total.shape[1], like.weighted.shape[1]), like.total
    maximum = numbers.new_full((num_parts, num_heads), -torch.inf)
    return SoftmaxState(maximum, torch.zeros_like(maximum), zero_padded(num_parts, width, like=numbers).zero_())


def _launch(
    items: EdgeItems,
    indices: Tensor,
    of_edges: tuple[Tensor, Tensor, Tensor, float],
    state: SoftmaxState,
    factors: tuple[Any, ...],
    constants: dict[str, bool],
) -> None:
    """Add the edges of ``items`` to ``state``. Of the ``constants``, DYNAMIC, PARTS and STATES are given."""
    of_sources, of_targets, x, slope = of_edges
    num_heads = state.total.shape[1]
    sizes = (len(items.begin), items.most, num_heads, x.shape[1] // num_heads)
    grid, shape = shape_of(*sizes, x, *_shape(constants["DYNAMIC"], has_dropout=factors[1] is not None))
    unit = shape["UNIT"]
    attend_rows[grid](
        *item_arguments(items),
        indices,
        of_sources,
        of_targets,
        of_targets.stride(0) // (unit if constants["DYNAMIC"] else 1),
        x,
        x.stride(0) // unit,
        slope,
        state.maximum,
        state.total,
        state.weighted,
        *factors,
        OUT_STRIDE=state.weighted.stride(0),
        **constants,
        **shape,
    )


def _shape(dynamic: bool, has_dropout: bool) -> tuple[int, int | None]:
    """``numbers`` and ``registers`` of ``shape_of`` with which five programs run on a multiprocessor at least."""
    return 8 if dynamic else 16, 96 if has_dropout else None


@triton.jit
def above(number):
    """``number``, but 0 where it is -inf, so that -inf - above(-inf) is -inf and not nan."""
    return tl.where(number == float("-inf"), 0.0, number)


@triton.jit(do_not_specialize=["num_items", "target_stride", "x_stride"])
def attend_rows(
    begin,  # (num_items,) int32: the edges of an item are begin to end
    end,
    rows,  # (num_items,) int32 target of each item; None: 0, 1, ...
    num_items,
    indices,  # (E,) int32
    of_sources,  # (m, K) logits; with DYNAMIC, the (K * D,) vector; with STATES, the maxima of the (m, ...) states
    of_targets,  # (n, K) logits; with DYNAMIC, the (n, K * D) rows of the targets; with STATES, the (m, K) totals
    target_stride,  # with DYNAMIC, in units of UNIT
    x,  # (m, K * D); with STATES, the weighted sums
    x_stride,  # in units of UNIT
    slope: tl.float64,
    maximum,  # (n, K), from here to weighted the state
    total,  # (n, K)
    weighted,  # (n, K * D)
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
    OUT_STRIDE: tl.constexpr,
    DYNAMIC: tl.constexpr,  # the rows of source and target make the logit
    PARTS: tl.constexpr,  # the state has a row for each item
    STATES: tl.constexpr,  # "edges" are states of parts
):
    """Add the edges of some targets to their states."""
    row, exists, edge, last = item_lanes(begin, end, rows, num_items, ROWS, EDGES)
    head, read, is_first, column, within = columns_of(K, D, HEADS, DEPTH, UNIT)
    LANES: tl.constexpr = ROWS * EDGES
    VECTORS: tl.constexpr = HEADS * DEPTH // UNIT
    stride = tl.cast(x_stride, tl.int64) * UNIT
    if DYNAMIC:
        vector = tl.load(of_sources + column, mask=within, other=0)[None, :, :]
        of_target = load_rows(of_targets, row, tl.cast(target_stride, tl.int64) * UNIT, column, exists, read, EVEN)
        of_target = own_columns(of_target, within, D, UNIT)
    elif not STATES:
        of_target = load_heads(of_targets, row, K, head, exists, read)
    top = tl.full((LANES, VECTORS), float("-inf"), x.dtype.element_ty)
    lane_total = tl.zeros((LANES, VECTORS), x.dtype.element_ty)
    lane_sum = tl.zeros((LANES, VECTORS, UNIT), x.dtype.element_ty)
    if target_id is not None:
        id_of_target = tl.load(target_id + row, mask=exists, other=0)

    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        # The next indices are loaded before these rows; otherwise each step would wait twice.
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        of_source = load_rows(x, source, stride, column, here, read, EVEN)
        if DYNAMIC:
            of_source = own_columns(of_source, within, D, UNIT)
            logit = score(of_source + of_target, vector, slope, HEADS, DYNAMIC)
        else:
            logit = load_heads(of_sources, source, K, head, here, read)
            if not STATES:
                logit = score(logit + of_target, None, slope, HEADS, DYNAMIC)
        logit = tl.where(here[:, None], logit, float("-inf"))
        new_top = tl.maximum(top, logit)
        shrink, weight = tl.exp(top - above(new_top)), tl.exp(logit - above(new_top))
        if STATES:
            lane_total = lane_total * shrink + weight * load_heads(of_targets, source, K, head, here, read)
        else:
            lane_total = lane_total * shrink + weight
        if edge_weight is not None:
            weight *= load_weights(edge_weight, edge, here)
        if target_id is not None:
            id_of_source = tl.load(source_id + source, mask=here, other=0)
            weight = drop_weights(weight, id_of_target, id_of_source, head, epoch, seed, layer, threshold, drop_scale,
                                  HEADS)  # fmt: skip
        lane_sum = lane_sum * shrink[:, :, None] + weight[:, :, None] * of_source
        top = new_top
        edge += EDGES
        source = ahead

    row, exists = written_rows(rows, num_items, ROWS, PARTS)
    of_row = (row * K)[:, None] + head[None, :]
    mask = exists[:, None] & read[None, :]
    before = tl.load(maximum + of_row, mask=mask, other=float("-inf"))
    old_total = tl.load(total + of_row, mask=mask, other=0)
    best = tl.maximum(tl.max(tl.reshape(top, (ROWS, EDGES, VECTORS)), 1), before)
    of_lanes = tl.broadcast_to(above(best)[:, None, :], (ROWS, EDGES, VECTORS))
    shrink = tl.exp(top - tl.reshape(of_lanes, (LANES, VECTORS)))
    row_total = sum_of_lanes(lane_total * shrink, ROWS, EDGES)
    row_sum = sum_of_lanes(lane_sum * shrink[:, :, None], ROWS, EDGES)
    kept = tl.exp(before - above(best))
    tl.debug_barrier()  # all vectors of a head have read its state before the first one writes it
    tl.store(maximum + of_row, best, mask=mask & is_first[None, :])
    tl.store(total + of_row, old_total * kept + row_total, mask=mask & is_first[None, :])
    out = weighted + (row * OUT_STRIDE)[:, None, None] + column[None, :, :]
    mask_of_out = exists[:, None, None] & within[None, :, :]
    old = tl.load(out, mask=mask_of_out, other=0)
    tl.store(out, old * kept[:, :, None] + row_sum, mask=mask_of_out)
