"""The gradients of attention over a stage on a GPU, for ``attention.py``. Importing this module imports Triton.

The programs are those of ``_attention_gpu.py``; the weights and dot products of an edge are computed again.
"""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.edges._attention_gpu import (
    columns_of,
    drop_weights,
    factor_arguments,
    load_heads,
    load_rows,
    load_weights,
    row_lanes,
    shape_of,
    sloped,
    variant_shapes,
)
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.gpu import vector_unit


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
    num_heads, logit_source, grad = logit_source.shape[1], logit_source.contiguous(), rows.grad.contiguous()
    depth, unit = x.shape[1] // num_heads, vector_unit(x, x.stride(0))
    common = (logit_source, x, x.stride(0) // unit, slope, rows.table, grad)
    grid, shape = shape_of(csr.num_rows, csr.nnz, num_heads, depth)
    edges = (csr.indptr, csr.indices, csr.num_rows)
    factors = factor_arguments(csr.values, mask)
    target_gradients[grid](*edges, *common, rows.grad_logit_target, *factors, UNIT=unit, **shape)
    grad_logit_source, grad_x = logit_source.new_empty(logit_source.shape), x.new_empty(x.shape)
    grid, shape = shape_of(csr.num_cols, csr.nnz, num_heads, depth)
    edges = (transposed.indptr, transposed.targets, csr.num_cols)
    factors = factor_arguments(transposed.values, mask)
    source_gradients[grid](*edges, *common, grad_logit_source, grad_x, *factors, UNIT=unit, **shape)
    return grad_logit_source, grad_x


@triton.jit
def load_table(table, row, head, exists, has_head, K: tl.constexpr):
    """The four [LANES, HEADS] numbers of ``AttentionRows.table``: logit_target, maximum, 1 / total and dot."""
    mask = exists[:, None] & has_head[None, :]
    place = table + (row * (4 * K))[:, None] + head[None, :]
    logit, top = tl.load(place, mask=mask, other=0), tl.load(place + K, mask=mask, other=0)
    return logit, top, tl.load(place + 2 * K, mask=mask, other=0), tl.load(place + 3 * K, mask=mask, other=0)


@triton.jit(do_not_specialize=["num_rows"])
def target_gradients(
    indptr,  # (n + 1,) int32
    indices,  # (E,) int32
    num_rows,
    logit_source,  # (m, K)
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 4 * K)
    grad,  # (n, K * D)
    grad_logit_target,  # (n, K), to which the gradients are added
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
):
    """Add the gradients of the logits of some targets."""
    row, exists, edge, last = row_lanes(indptr, num_rows, ROWS, EDGES)
    head, has_head, column, within = columns_of(K, D, HEADS, DEPTH)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    of_target, top, inverse, dot = load_table(table, row, head, exists & (edge < last), has_head, K)
    of_grad = load_rows(grad, row, K * D, column, exists, within, EVEN)
    gradient = tl.zeros((ROWS * EDGES, HEADS), x.dtype.element_ty)
    id_of_target = row
    if target_id is not None:
        id_of_target = tl.load(target_id + row, mask=exists, other=0)
    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        logit = load_heads(logit_source, source, head, here, has_head, K) + of_target
        weight = tl.exp(tl.minimum(sloped(logit, logit, slope) - top, 0.0)) * inverse
        rows = load_rows(x, source, stride, column, here, within, EVEN)
        of_weight = tl.sum(rows * of_grad, 2)
        if edge_weight is not None:
            of_weight *= load_weights(edge_weight, edge, here)
        if target_id is not None:
            id_of_source = tl.load(source_id + source, mask=here, other=0)
            of_weight = drop_weights(of_weight, id_of_target, id_of_source, tl.program_id(1) * HEADS, epoch, seed,
                                     layer, threshold, drop_scale)  # fmt: skip
        of_edge = sloped(weight * (of_weight - dot), logit, slope)
        gradient += tl.where(here[:, None], of_edge, 0.0)
        edge += EDGES
        source = ahead
    total = tl.sum(tl.reshape(gradient, (ROWS, EDGES, HEADS)), 1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = grad_logit_target + (row * K)[:, None] + head[None, :]
    mask = (row < num_rows)[:, None] & has_head[None, :]
    tl.store(place, tl.load(place, mask=mask, other=0) + total, mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def source_gradients(
    indptr,  # (m + 1,) int32
    targets,  # (E,) int32
    num_rows,
    logit_source,  # (m, K)
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 4 * K)
    grad,  # (n, K * D)
    grad_logit_source,  # (m, K)
    grad_x,  # (m, K * D)
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
):
    """Write the gradients of the logits and rows of some sources."""
    row, exists, edge, last = row_lanes(indptr, num_rows, ROWS, EDGES)
    head, has_head, column, within = columns_of(K, D, HEADS, DEPTH)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    of_source = load_heads(logit_source, row, head, exists, has_head, K)
    of_x = load_rows(x, row, stride, column, exists, within, EVEN)
    gradient = tl.zeros((ROWS * EDGES, HEADS), x.dtype.element_ty)
    lane_sum = tl.zeros((ROWS * EDGES, HEADS, DEPTH), x.dtype.element_ty)
    id_of_source = row
    if target_id is not None:
        id_of_source = tl.load(source_id + row, mask=exists, other=0)
    target = tl.load(targets + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(targets + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        of_target, top, inverse, dot = load_table(table, target, head, here, has_head, K)
        logit = of_target + of_source
        weight = tl.exp(tl.minimum(sloped(logit, logit, slope) - top, 0.0)) * inverse
        of_grad = load_rows(grad, target, K * D, column, here, within, EVEN)
        of_weight, changed = tl.sum(of_grad * of_x, 2), weight
        if edge_weight is not None:
            factor = load_weights(edge_weight, edge, here)
            of_weight *= factor
            changed *= factor
        if target_id is not None:
            id_of_target = tl.load(target_id + target, mask=here, other=0)
            kept = drop_weights(tl.full((ROWS * EDGES, HEADS), 1, x.dtype.element_ty), id_of_target, id_of_source,
                                tl.program_id(1) * HEADS, epoch, seed, layer, threshold, drop_scale)  # fmt: skip
            of_weight *= kept
            changed *= kept
        of_edge = sloped(weight * (of_weight - dot), logit, slope)
        gradient += tl.where(here[:, None], of_edge, 0.0)
        lane_sum += changed[:, :, None] * of_grad  # rows of lanes past the last edge are 0
        edge += EDGES
        target = ahead
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mask = (row < num_rows)[:, None] & has_head[None, :]
    total = tl.sum(tl.reshape(gradient, (ROWS, EDGES, HEADS)), 1)
    tl.store(grad_logit_source + (row * K)[:, None] + head[None, :], total, mask=mask)
    row_sum = tl.sum(tl.reshape(lane_sum, (ROWS, EDGES, HEADS, DEPTH)), 1)
    out = grad_x + (row * (K * D))[:, None, None] + column[None, :, :]
    tl.store(out, row_sum, mask=(row < num_rows)[:, None, None] & within[None, :, :])


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """Variants to compile: (kernel, signature, constants, options) of representative calls."""
    for _, dtype, shape, types, without in variant_shapes():
        common = {"indptr": "*i32:16", "num_rows": "i32", "x_stride": "i32", "slope": "fp64"} | types
        common |= {name: f"*{dtype}:16" for name in ("logit_source", "x", "table", "grad")}
        constants = shape | without
        of_targets = {"indices": "*i32:16", "grad_logit_target": f"*{dtype}:16"}
        yield target_gradients, common | of_targets, constants, {"num_warps": 4}
        of_sources = {"targets": "*i32:16", "grad_logit_source": f"*{dtype}:16", "grad_x": f"*{dtype}:16"}
        yield source_gradients, common | of_sources, constants, {"num_warps": 4}
