"""The gradients of dynamic attention over a stage on a GPU, for ``dynamic_attention.py``. Importing this module imports
Triton.

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
    load_rows,
    load_weights,
    row_lanes,
    shape_of,
    sloped,
    variant_shapes,
)
from fullgnn.kernels.edges.dynamic_rows import DynamicRows
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.gpu import vector_unit

ELEMENTS = 1024  # numbers of the rows of X that a program reads at a time: two rows, two sums and a vector are held


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
    (num_heads, depth), unit = vector.shape, vector_unit(x, x.stride(0))
    common = (vector, rows.x_target, x, x.stride(0) // unit, slope, rows.table, rows.grad)
    grid, shape = shape_of(csr.num_rows, csr.nnz, num_heads, depth, ELEMENTS)
    edges, of_targets = (csr.indptr, csr.indices, csr.num_rows), (rows.grad_x_target, rows.grad_vector)
    factors = factor_arguments(csr.values, mask)
    dynamic_target_gradients[grid](*edges, *common, *of_targets, *factors, UNIT=unit, **shape)
    grad_x = x.new_empty(x.shape)
    grid, shape = shape_of(csr.num_cols, csr.nnz, num_heads, depth, ELEMENTS)
    edges = (transposed.indptr, transposed.targets, csr.num_cols)
    factors = factor_arguments(transposed.values, mask)
    dynamic_source_gradients[grid](*edges, *common, grad_x, *factors, UNIT=unit, **shape)
    return grad_x


@triton.jit
def load_table(table, row, head, exists, has_head, K: tl.constexpr):
    """The three [LANES, HEADS] numbers of ``DynamicRows.table``: maximum, 1 / total and dot."""
    mask = exists[:, None] & has_head[None, :]
    place = table + (row * (3 * K))[:, None] + head[None, :]
    return (
        tl.load(place, mask=mask, other=0),
        tl.load(place + K, mask=mask, other=0),
        tl.load(place + 2 * K, mask=mask, other=0),
    )


@triton.jit(do_not_specialize=["num_rows"])
def dynamic_target_gradients(
    indptr,  # (n + 1,) int32
    indices,  # (E,) int32
    num_rows,
    vector,  # (K * D,)
    x_target,  # (n, K * D)
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 3 * K)
    grad,  # (n, K * D)
    grad_x_target,  # (n, K * D), to which the gradients are added
    grad_vector,  # (n, K * D), to which the targets' parts are added
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
    """Add the gradients of the rows of some targets, and their parts of the gradient of the vector."""
    row, exists, edge, last = row_lanes(indptr, num_rows, ROWS, EDGES)
    head, has_head, column, within = columns_of(K, D, HEADS, DEPTH)
    stride = tl.cast(x_stride, tl.int64) * UNIT
    top, inverse, dot = load_table(table, row, head, exists & (edge < last), has_head, K)
    factors = tl.load(vector + column, mask=within, other=0)[None, :, :]
    of_target = load_rows(x_target, row, K * D, column, exists, within, EVEN)
    of_grad = load_rows(grad, row, K * D, column, exists, within, EVEN)
    lane_sum = tl.zeros((ROWS * EDGES, HEADS, DEPTH), x.dtype.element_ty)
    lane_vector = tl.zeros((ROWS * EDGES, HEADS, DEPTH), x.dtype.element_ty)
    id_of_target = row
    if target_id is not None:
        id_of_target = tl.load(target_id + row, mask=exists, other=0)
    source = tl.load(indices + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(indices + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        rows = load_rows(x, source, stride, column, here, within, EVEN)
        ends = rows + of_target
        logit = tl.sum(sloped(ends, ends, slope) * factors, 2)
        weight = tl.exp(tl.minimum(logit - top, 0.0)) * inverse
        of_weight = tl.sum(rows * of_grad, 2)
        if edge_weight is not None:
            of_weight *= load_weights(edge_weight, edge, here)
        if target_id is not None:
            id_of_source = tl.load(source_id + source, mask=here, other=0)
            of_weight = drop_weights(of_weight, id_of_target, id_of_source, tl.program_id(1) * HEADS, epoch, seed,
                                     layer, threshold, drop_scale)  # fmt: skip
        of_logit = tl.where(here[:, None], weight * (of_weight - dot), 0.0)[:, :, None]
        gradient = sloped(tl.broadcast_to(of_logit, (ROWS * EDGES, HEADS, DEPTH)), ends, slope)
        lane_sum += gradient
        lane_vector += gradient * ends
        edge += EDGES
        source = ahead
    total = tl.sum(tl.reshape(lane_sum * factors, (ROWS, EDGES, HEADS, DEPTH)), 1)
    of_vector = tl.sum(tl.reshape(lane_vector, (ROWS, EDGES, HEADS, DEPTH)), 1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = (row * (K * D))[:, None, None] + column[None, :, :]
    mask = (row < num_rows)[:, None, None] & within[None, :, :]
    tl.store(grad_x_target + place, tl.load(grad_x_target + place, mask=mask, other=0) + total, mask=mask)
    tl.store(grad_vector + place, tl.load(grad_vector + place, mask=mask, other=0) + of_vector, mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def dynamic_source_gradients(
    indptr,  # (m + 1,) int32
    targets,  # (E,) int32
    num_rows,
    vector,  # (K * D,)
    x_target,  # (n, K * D)
    x,  # (m, K * D)
    x_stride,  # in units of UNIT
    slope: tl.float64,
    table,  # (n, 3 * K)
    grad,  # (n, K * D)
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
    """Write the gradients of the rows of some sources."""
    row, exists, edge, last = row_lanes(indptr, num_rows, ROWS, EDGES)
    head, has_head, column, within = columns_of(K, D, HEADS, DEPTH)
    factors = tl.load(vector + column, mask=within, other=0)[None, :, :]
    of_x = load_rows(x, row, tl.cast(x_stride, tl.int64) * UNIT, column, exists, within, EVEN)
    lane_sum = tl.zeros((ROWS * EDGES, HEADS, DEPTH), x.dtype.element_ty)
    id_of_source = row
    if target_id is not None:
        id_of_source = tl.load(source_id + row, mask=exists, other=0)
    target = tl.load(targets + edge, mask=edge < last, other=0).to(tl.int64)
    for _ in range(0, tl.max(last - edge), EDGES):
        here = edge < last
        ahead = tl.load(targets + edge + EDGES, mask=edge + EDGES < last, other=0).to(tl.int64)
        top, inverse, dot = load_table(table, target, head, here, has_head, K)
        ends = load_rows(x_target, target, K * D, column, here, within, EVEN) + of_x
        logit = tl.sum(sloped(ends, ends, slope) * factors, 2)
        weight = tl.exp(tl.minimum(logit - top, 0.0)) * inverse
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
        of_logit = (weight * (of_weight - dot))[:, :, None]  # the weights of lanes past the last edge are 0
        gradient = sloped(tl.broadcast_to(of_logit, (ROWS * EDGES, HEADS, DEPTH)), ends, slope)
        lane_sum += gradient * factors + changed[:, :, None] * of_grad
        edge += EDGES
        target = ahead
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.sum(tl.reshape(lane_sum, (ROWS, EDGES, HEADS, DEPTH)), 1)
    out = grad_x + (row * (K * D))[:, None, None] + column[None, :, :]
    tl.store(out, total, mask=(row < num_rows)[:, None, None] & within[None, :, :])


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """Variants to compile: (kernel, signature, constants, options) of representative calls."""
    for _, dtype, shape, types, without in variant_shapes(ELEMENTS):
        common = {"indptr": "*i32:16", "num_rows": "i32", "x_stride": "i32", "slope": "fp64"} | types
        common |= {name: f"*{dtype}:16" for name in ("vector", "x_target", "x", "table", "grad")}
        of_targets = {"indices": "*i32:16"} | dict.fromkeys(("grad_x_target", "grad_vector"), f"*{dtype}:16")
        yield dynamic_target_gradients, common | of_targets, shape | without, {"num_warps": 4}
        of_sources = {"targets": "*i32:16", "grad_x": f"*{dtype}:16"}
        yield dynamic_source_gradients, common | of_sources, shape | without, {"num_warps": 4}
