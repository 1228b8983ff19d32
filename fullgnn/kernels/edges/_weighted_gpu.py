"""Products and softmax with values per edge on a GPU, for ``weighted.py``. Importing this module imports Triton.

The programs are those of ``_attention_gpu.py``.
"""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.edges._attention_gpu import (
    above,
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


def edge_softmax_gpu(csr: LocalCSR, logits: Tensor, out: Tensor) -> None:
    """Write the softmax of (E, K) ``logits`` to ``out``; both are contiguous."""
    grid, shape = shape_of(csr.num_rows, csr.nnz, logits.shape[1], 1)
    edge_softmax[grid](csr.indptr, csr.num_rows, logits, out, **_of_heads(shape))


def edge_softmax_gradient_gpu(csr: LocalCSR, softmax: Tensor, grad: Tensor, out: Tensor) -> None:
    """Write the gradient of the logits to (E, K) ``out``; all are contiguous."""
    grid, shape = shape_of(csr.num_rows, csr.nnz, softmax.shape[1], 1)
    edge_softmax_gradient[grid](csr.indptr, csr.num_rows, softmax, grad, out, **_of_heads(shape))


def _of_heads(shape: dict[str, int]) -> dict[str, int]:
    """The constants of a kernel whose rows are heads without columns."""
    return {name: shape[name] for name in ("K", "ROWS", "EDGES", "HEADS")}


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


@triton.jit(do_not_specialize=["num_rows"])
def edge_softmax(
    indptr,  # (n + 1,) int32
    num_rows,
    logits,  # (E, K)
    out,  # (E, K)
    K: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Write the softmax over the edges of some rows: one pass over the logits finds maximum and sum, another writes."""
    row, exists, first, last = row_lanes(indptr, num_rows, ROWS, EDGES)
    head, has_head, column, within = columns_of(K, 1, HEADS, 1)
    top = tl.full((ROWS * EDGES, HEADS), float("-inf"), logits.dtype.element_ty)
    lane_total = tl.zeros((ROWS * EDGES, HEADS), logits.dtype.element_ty)
    edge = first
    for _ in range(0, tl.max(last - first), EDGES):
        here = edge < last
        logit = load_heads(logits, edge.to(tl.int64), head, here, has_head, K)
        logit = tl.where(here[:, None], logit, float("-inf"))
        new_top = tl.maximum(top, logit)
        lane_total = lane_total * tl.exp(top - above(new_top)) + tl.exp(logit - above(new_top))
        top = new_top
        edge += EDGES
    best = above(tl.max(tl.reshape(top, (ROWS, EDGES, HEADS)), 1))
    base = tl.reshape(tl.broadcast_to(best[:, None, :], (ROWS, EDGES, HEADS)), (ROWS * EDGES, HEADS))
    total = tl.sum(tl.reshape(lane_total * tl.exp(top - base), (ROWS, EDGES, HEADS)), 1)
    inverse = tl.reshape(tl.broadcast_to(1 / total[:, None, :], (ROWS, EDGES, HEADS)), (ROWS * EDGES, HEADS))
    edge = first
    for _ in range(0, tl.max(last - first), EDGES):
        here = edge < last
        logit = load_heads(logits, edge.to(tl.int64), head, here, has_head, K)
        place = out + (edge.to(tl.int64) * K)[:, None] + head[None, :]
        tl.store(place, tl.exp(logit - base) * inverse, mask=here[:, None] & has_head[None, :])
        edge += EDGES


@triton.jit(do_not_specialize=["num_rows"])
def edge_softmax_gradient(
    indptr,  # (n + 1,) int32
    num_rows,
    softmax,  # (E, K)
    grad,  # (E, K)
    out,  # (E, K)
    K: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Write the gradients of the logits of some rows' edges."""
    row, exists, first, last = row_lanes(indptr, num_rows, ROWS, EDGES)
    head, has_head, column, within = columns_of(K, 1, HEADS, 1)
    lane_sum = tl.zeros((ROWS * EDGES, HEADS), softmax.dtype.element_ty)
    edge = first
    for _ in range(0, tl.max(last - first), EDGES):
        here = edge < last
        weight = load_heads(softmax, edge.to(tl.int64), head, here, has_head, K)
        lane_sum += weight * load_heads(grad, edge.to(tl.int64), head, here, has_head, K)
        edge += EDGES
    total = tl.sum(tl.reshape(lane_sum, (ROWS, EDGES, HEADS)), 1)
    of_lanes = tl.reshape(tl.broadcast_to(total[:, None, :], (ROWS, EDGES, HEADS)), (ROWS * EDGES, HEADS))
    edge = first
    for _ in range(0, tl.max(last - first), EDGES):
        here = edge < last
        weight = load_heads(softmax, edge.to(tl.int64), head, here, has_head, K)
        of_weight = load_heads(grad, edge.to(tl.int64), head, here, has_head, K)
        place = out + (edge.to(tl.int64) * K)[:, None] + head[None, :]
        tl.store(place, weight * (of_weight - of_lanes), mask=here[:, None] & has_head[None, :])
        edge += EDGES


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
        _, of_heads = shape_of(1000, 50_000, shape["K"], 1)
        yield edge_softmax, common | {"logits": number_type}, _of_heads(of_heads), options
        gradients = common | {"softmax": number_type, "grad": number_type}
        yield edge_softmax_gradient, gradients, _of_heads(of_heads), options
