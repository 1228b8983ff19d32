"""Attention over a stage of edges on a GPU, for ``attention.py``. Importing this module imports Triton.

A program processes a few rows, targets or sources, for a few heads:

    lanes (ROWS x EDGES)    each takes every EDGES-th edge of one of ROWS rows, with a softmax state of its own
    at the end              the states of the lanes of a row are merged, always in the same order

So no thread waits for another one between two edges, except for the sum of a dot product. All offsets have 64 bits.
"""

import math
from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.dropout._philox_gpu import signed
from fullgnn.kernels.edges.mask import EDGES as KEY_OF_EDGES
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.gpu import vector_unit

ELEMENTS = 2048  # numbers of the rows of X that a program reads at a time
MAX_LANES = 64
COLUMNS = 128  # columns of the heads of one program, at most, where a head has fewer

FACTOR_TYPES = {
    "edge_weight": "*{dtype}:16",
    "target_id": "*i64:16",
    "source_id": "*i64:16",
    "epoch": "*i64:16",
    "seed": "i64",
    "layer": "i64",
    "threshold": "i64",
    "drop_scale": "fp64",
}
"""The types of the arguments of the factors of edges, for ``variants``."""


def factor_arguments(values: Tensor | None, mask: EdgeMask | None) -> tuple[Any, ...]:
    """The kernel arguments of the factors of edges.

    Args:
        values: (E,) edge weights, in the order in which the kernel reads the edges; None: all 1.
        mask: the attention dropout; None: none.
    """
    if mask is None:
        return values, None, None, None, 0, 0, 0, 1.0
    ids = (mask.target_id.contiguous(), mask.source_id.contiguous())
    seed = signed(mask.seed ^ KEY_OF_EDGES << 32)
    return values, *ids, mask.epoch, seed, mask.layer, mask.threshold, mask.scale


def shape_of(
    num_rows: int, num_edges: int, num_heads: int, depth: int, elements: int = ELEMENTS
) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid, and the compile-time constants of a program's shape, for rows of ``num_heads`` heads, of which a
    program reads ``elements`` numbers at a time."""
    padded = triton.next_power_of_2(depth)
    heads = min(triton.next_power_of_2(num_heads), max(1, COLUMNS // padded))
    lanes = max(1, min(MAX_LANES, elements // (heads * padded)))
    edges = min(lanes, triton.next_power_of_2(-(-num_edges // max(1, num_rows)) or 1))
    constants = {"K": num_heads, "D": depth, "ROWS": lanes // edges, "EDGES": edges, "HEADS": heads, "DEPTH": padded}
    constants["EVEN"] = num_heads % heads == 0 and padded == depth
    return (triton.cdiv(num_rows, lanes // edges), triton.cdiv(num_heads, heads)), constants


def attend_gpu(
    csr: LocalCSR,
    of_sources: Tensor,
    of_targets: Tensor,
    x: Tensor,
    slope: float,
    mask: EdgeMask | None,
    state: SoftmaxState,
    dynamic: bool = False,
) -> None:
    """See :func:`fullgnn.kernels.edges.attention.attend` for the logits of sources and targets; with ``dynamic``, see
    :func:`fullgnn.kernels.edges.dynamic_attention.attend_dynamic` for the vector and the rows of targets. The rows of
    ``x`` are contiguous."""
    num_heads = state.maximum.shape[1]
    grid, shape = shape_of(csr.num_rows, csr.nnz, num_heads, x.shape[1] // num_heads)
    unit = vector_unit(x, x.stride(0))
    attend_rows[grid](
        csr.indptr,
        csr.indices,
        csr.num_rows,
        of_sources.contiguous(),
        of_targets.contiguous(),
        x,
        x.stride(0) // unit,
        slope,
        state.maximum,
        state.total,
        state.weighted,
        *factor_arguments(csr.values, mask),
        DYNAMIC=dynamic,
        UNIT=unit,
        **shape,
    )


@triton.jit
def row_lanes(indptr, num_rows, ROWS: tl.constexpr, EDGES: tl.constexpr):
    """The row of each lane, whether it exists, its lane's first edge and the end of its edges."""
    lane = tl.arange(0, ROWS * EDGES)
    row = tl.program_id(0).to(tl.int64) * ROWS + lane // EDGES
    exists = row < num_rows
    edge = tl.load(indptr + row, mask=exists, other=0) + lane % EDGES
    return row, exists, edge, tl.load(indptr + row + 1, mask=exists, other=0)


@triton.jit
def columns_of(K: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, DEPTH: tl.constexpr):
    """The [HEADS] heads of this program and the [HEADS, DEPTH] columns of a row, each with where they exist."""
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    depth = tl.arange(0, DEPTH)
    column = head[:, None] * D + depth[None, :]
    return head, head < K, column, (head < K)[:, None] & (depth < D)[None, :]


@triton.jit
def load_rows(x, row, stride, column, exists, within, EVEN: tl.constexpr):
    """The [LANES, HEADS, DEPTH] ``column`` of the [LANES] ``row`` of ``x``, 0 elsewhere."""
    if EVEN:
        mask = exists[:, None, None]
    else:
        mask = exists[:, None, None] & within[None, :, :]
    return tl.load(x + (row * stride)[:, None, None] + column[None, :, :], mask=mask, other=0)


@triton.jit
def load_heads(of_heads, row, head, exists, has_head, K: tl.constexpr):
    """The [LANES, HEADS] numbers of the [LANES] ``row`` and [HEADS] ``head``, 0 elsewhere."""
    mask = exists[:, None] & has_head[None, :]
    return tl.load(of_heads + (row * K)[:, None] + head[None, :], mask=mask, other=0)


@triton.jit
def load_weights(edge_weight, edge, here):
    """The [LANES, 1] weights of the [LANES] edges."""
    return tl.load(edge_weight + edge, mask=here, other=0)[:, None]


@triton.jit
def sloped(number, sign, slope):
    """``number``, but ``slope * number`` where ``sign`` is not positive."""
    return tl.where(sign > 0, number, number * tl.full([1, 1], slope, number.dtype))


@triton.jit
def above(number):
    """``number``, but 0 where it is -inf, so that -inf - above(-inf) is -inf and not nan."""
    return tl.where(number == float("-inf"), 0.0, number)


@triton.jit
def drop_weights(weight, target, source, first_head, epoch, seed, layer, threshold, drop_scale):
    """Apply the dropout to the [LANES, HEADS] ``weight`` of the edges between the [LANES] original ids."""
    HEADS: tl.constexpr = weight.shape[1]
    high = (target >> 32) + ((source >> 32) << 8) + (layer << 24)
    word_0 = tl.cast(target, tl.uint32)[:, None]
    word_1 = tl.cast(source, tl.uint32)[:, None]
    word_3 = tl.cast(tl.load(epoch), tl.uint32)
    least = tl.cast(threshold, tl.uint32)
    if HEADS % 4 == 0:
        group = first_head // 4 + tl.arange(0, HEADS // 4)
        word_2 = tl.cast(high[:, None] + (group << 16)[None, :], tl.uint32)
        random_0, random_1, random_2, random_3 = tl.philox(tl.cast(seed, tl.int64), word_0, word_1, word_2, word_3)
        keep_0, keep_1 = (random_0 >= least).to(tl.int8), (random_1 >= least).to(tl.int8)
        keep_2, keep_3 = (random_2 >= least).to(tl.int8), (random_3 >= least).to(tl.int8)
        keep = tl.interleave(tl.interleave(keep_0, keep_2), tl.interleave(keep_1, keep_3)) != 0
    else:
        head = first_head + tl.arange(0, HEADS)
        word_2 = tl.cast(high[:, None] + (head // 4 << 16)[None, :], tl.uint32)
        random_0, random_1, random_2, random_3 = tl.philox(tl.cast(seed, tl.int64), word_0, word_1, word_2, word_3)
        at = (head % 4)[None, :]
        random = tl.where(at < 2, tl.where(at == 0, random_0, random_1), tl.where(at == 2, random_2, random_3))
        keep = random >= least
    return tl.where(keep, weight * tl.full([1, 1], drop_scale, weight.dtype), 0.0)


@triton.jit(do_not_specialize=["num_rows"])
def attend_rows(
    indptr,  # (n + 1,) int32
    indices,  # (E,) int32
    num_rows,
    of_sources,  # (m, K) logits; with DYNAMIC, the (K * D,) vector
    of_targets,  # (n, K) logits; with DYNAMIC, the (n, K * D) rows of the targets
    x,  # (m, K * D)
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
    DYNAMIC: tl.constexpr,  # the rows of source and target make the logit
):
    """Add the edges of some targets to their states."""
    row, exists, edge, last = row_lanes(indptr, num_rows, ROWS, EDGES)
    head, has_head, column, within = columns_of(K, D, HEADS, DEPTH)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    if DYNAMIC:
        vector = tl.load(of_sources + column, mask=within, other=0)[None, :, :]
        of_target = load_rows(of_targets, row, K * D, column, exists, within, EVEN)
    else:
        of_target = load_heads(of_targets, row, head, exists, has_head, K)
    top = tl.full((ROWS * EDGES, HEADS), float("-inf"), x.dtype.element_ty)
    lane_total = tl.zeros((ROWS * EDGES, HEADS), x.dtype.element_ty)
    lane_sum = tl.zeros((ROWS * EDGES, HEADS, DEPTH), x.dtype.element_ty)
    id_of_target = row
    if target_id is not None:
        id_of_target = tl.load(target_id + row, mask=exists, other=0)

    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        # The next indices are loaded before these rows; otherwise each step would wait twice.
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        if DYNAMIC:
            rows = load_rows(x, source, stride, column, here, within, EVEN)
            ends = rows + of_target
            logit = tl.sum(sloped(ends, ends, slope) * vector, 2)
        else:
            logit = load_heads(of_sources, source, head, here, has_head, K) + of_target
            logit = sloped(logit, logit, slope)
        logit = tl.where(here[:, None], logit, float("-inf"))
        new_top = tl.maximum(top, logit)
        shrink, weight = tl.exp(top - above(new_top)), tl.exp(logit - above(new_top))
        lane_total = lane_total * shrink + weight
        if edge_weight is not None:
            weight *= load_weights(edge_weight, edge, here)
        if target_id is not None:
            id_of_source = tl.load(source_id + source, mask=here, other=0)
            weight = drop_weights(weight, id_of_target, id_of_source, tl.program_id(1) * HEADS, epoch, seed, layer,
                                  threshold, drop_scale)  # fmt: skip
        if not DYNAMIC:
            rows = load_rows(x, source, stride, column, here, within, EVEN)
        lane_sum = lane_sum * shrink[:, :, None] + weight[:, :, None] * rows
        top = new_top
        edge += EDGES
        source = ahead

    best = tl.max(tl.reshape(top, (ROWS, EDGES, HEADS)), 1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    of_row = (row * K)[:, None] + head[None, :]
    mask = (row < num_rows)[:, None] & has_head[None, :]
    before = tl.load(maximum + of_row, mask=mask, other=float("-inf"))
    best = tl.maximum(best, before)
    of_lanes = tl.broadcast_to(above(best)[:, None, :], (ROWS, EDGES, HEADS))
    shrink = tl.exp(top - tl.reshape(of_lanes, (ROWS * EDGES, HEADS)))
    row_total = tl.sum(tl.reshape(lane_total * shrink, (ROWS, EDGES, HEADS)), 1)
    row_sum = tl.sum(tl.reshape(lane_sum * shrink[:, :, None], (ROWS, EDGES, HEADS, DEPTH)), 1)
    kept = tl.exp(before - above(best))
    tl.store(maximum + of_row, best, mask=mask)
    tl.store(total + of_row, tl.load(total + of_row, mask=mask, other=0) * kept + row_total, mask=mask)
    out = weighted + (row * (K * D))[:, None, None] + column[None, :, :]
    mask_of_out = (row < num_rows)[:, None, None] & within[None, :, :]
    old = tl.load(out, mask=mask_of_out, other=0)
    tl.store(out, old * kept[:, :, None] + row_sum, mask=mask_of_out)


SHAPES = ((8, 8, "fp32"), (1, 41, "fp32"), (8, 32, "fp32"), (1, 64, "fp64"))
"""(K, D, dtype) of the variants that are compiled as a check, with contiguous rows."""


def variant_shapes(
    elements: int = ELEMENTS,
) -> Iterator[tuple[int, str, dict[str, Any], dict[str, str], dict[str, Any]]]:
    """For ``variants``: number, dtype, constants of the shape, and the types and constants of the factors."""
    for number, (num_heads, depth, dtype) in enumerate(SHAPES):
        _, shape = shape_of(1000, 50_000, num_heads, depth, elements)
        shape["UNIT"] = math.gcd(num_heads * depth, 4 if dtype == "fp32" else 2)
        weights, dropout = number >= 2, number % 2 == 0
        absent = ([] if weights else ["edge_weight"]) + ([] if dropout else ["target_id", "source_id", "epoch"])
        without = dict.fromkeys(absent)
        types = {name: one.format(dtype=dtype) for name, one in FACTOR_TYPES.items() if name not in without}
        yield number, dtype, shape, types, without


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """Variants to compile: (kernel, signature, constants, options) of representative calls."""
    numbers = ("of_sources", "of_targets", "x", "maximum", "total", "weighted")
    for _, dtype, shape, types, without in variant_shapes():
        signature = {"indptr": "*i32:16", "indices": "*i32:16", "num_rows": "i32", "x_stride": "i32", "slope": "fp64"}
        signature |= {name: f"*{dtype}:16" for name in numbers} | types
        for dynamic in (False, True):
            yield attend_rows, signature, shape | without | {"DYNAMIC": dynamic}, {"num_warps": 4}
