"""The compiled loops of :mod:`fullgnn.kernels.edges.attention`. Importing this module imports numba.

The edges of a target, or of a source in the second backward pass, are processed in tiles, as in flash attention (Dao et
al., 2022):

    logits      one row of K numbers per edge; the rows of X of the tile are prefetched, and in dynamic attention read
    weights     exp(logit - maximum), over all numbers of the tile, in whole vectors
    rows        the rows of X, weighted and added in registers, or multiplied by a row in registers

The numbers of a tile stay in the L1 cache. A target is processed by one thread, tile by tile in the order of its
edges, so the result does not depend on the number of threads.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import functools
import math

import numpy as np
from torch import Tensor

from fullgnn.kernels.edges._mask_cpu import drop_weights, factor_arguments, mask_memory
from fullgnn.kernels.edges._rows_cpu import RowLoop, over_rows
from fullgnn.kernels.edges._vectors_cpu import (
    Heads,
    compiled,
    exp_difference,
    exp_rows,
    head_sums,
    larger,
    multiply,
    sloped,
    spread,
    weigh_edges,
)
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.support.vectors import add, load, prefetch, store, zeros

TILE_BYTES = 1 << 14  # bytes of rows of X in a tile: a third of an L1 cache of 48 KB
MIN_TILE, MAX_TILE = 16, 128  # edges


def attend(stage: AttentionStage, of_targets: Tensor, state: SoftmaxState) -> None:
    """See :func:`fullgnn.kernels.edges.attention.attend`; the tensors are contiguous, and so are the rows of X."""
    x, csr, size = stage.x, stage.csr, stage.x.element_size()
    loop = attend_loop(8 * size, stage.num_heads, stage.depth, stage.dynamic)
    given = (stage.of_sources, of_targets, x, x.stride(0) * size, number_like(x, stage.slope))
    states, factors = (state.maximum, state.total, state.weighted), factor_arguments(csr.values, stage.mask, x)
    over_rows(loop, csr, *given, states, factors)


def number_like(x: Tensor, number: float) -> object:
    """``number`` as a NumPy number of the dtype of ``x``."""
    return x.new_tensor(number).numpy()[()]


def tile_edges(heads: Heads) -> int:
    """Edges of a tile."""
    return min(MAX_TILE, max(MIN_TILE, TILE_BYTES // (heads.num_slices * heads.slice_bytes)))


@functools.cache
def attend_loop(bits: int, num_heads: int, depth: int, dynamic: bool) -> RowLoop:
    """The loop that adds some targets' edges to their ``SoftmaxState``.

    Args:
        dynamic: whether the rows of source and target make the logit.
    """
    heads = Heads(bits, num_heads, depth)
    (lanes, num_vectors, last), size = heads.columns, heads.size
    head_lanes, head_vectors, last_head = heads.weights
    last_sum = heads.layout(heads.heads)[2]
    row_bytes, slice_bytes, in_slice = num_heads * size, heads.slice_bytes, heads.heads
    full_lanes, num_slices, tile = heads.full_lanes, heads.num_slices, tile_edges(heads)
    repeats = full_lanes // math.gcd(full_lanes, num_heads)  # rows of weights that fill whole vectors
    length = tile * num_heads + full_lanes

    @compiled(bits, num_heads, depth, dynamic)
    def add_edges(
        indptr, indices, first_row, stop_row, scratch, of_sources, of_targets, x, x_stride, slope, state, factors
    ):
        """Add the edges of some targets to the state.

        Args:
            of_sources, of_targets: addresses of the logits of sources and of targets; with ``dynamic``, of the vector
                and of the rows of the targets. They are contiguous.
            x: address.
            x_stride: row stride in bytes.
            state: addresses of the tensors of the ``SoftmaxState``.
            factors: ``FactorArguments``.
        """
        zero, no_weights = zeros(bits, lanes, num_vectors), zeros(bits, head_lanes, head_vectors)
        flat = zeros(bits, full_lanes, 1)
        (maximum, total, weighted), (edge_weight, target_id, source_id, drop) = state, factors
        weighs, masked = len(edge_weight) > 0, len(target_id) > 0
        memory = mask_memory(tile if masked else 0, num_heads)
        own = np.empty(1, np.int32)
        weights = scratch[:length]
        weights_at = scratch.ctypes.data
        repeated_at = weights_at + length * size
        factor_at = repeated_at + repeats * row_bytes
        for row in range(first_row, stop_row):
            edge, end = np.intp(indptr[row]), np.intp(indptr[row + 1])
            if edge == end:
                continue
            top = load(maximum + row * row_bytes, last_head, no_weights)
            row_total = load(total + row * row_bytes, last_head, no_weights)
            out = weighted + row * num_slices * slice_bytes
            while edge < end:
                count = min(tile, end - edge)
                before = top
                for k in range(count):
                    source = np.intp(indices[np.uint64(edge + k)])
                    prefetch(x + source * x_stride, zero)
                    if not dynamic:
                        of_source = load(of_sources + source * row_bytes, last_head, no_weights)
                        logit = add(of_source, load(of_targets + row * row_bytes, last_head, no_weights))
                        store(weights_at + k * row_bytes, last_head, sloped(logit, logit, slope))
                if dynamic:
                    for part in range(num_slices):
                        vector = load(of_sources + part * slice_bytes, last, zero)
                        of_target = load(of_targets + (row * num_slices + part) * slice_bytes, last, zero)
                        at, base = weights_at + part * in_slice * size, x + part * slice_bytes
                        for k in range(count):
                            source = np.intp(indices[np.uint64(edge + k)])
                            ends = add(load(base + source * x_stride, last, zero), of_target)
                            product = multiply(sloped(ends, ends, slope), vector)
                            store(at + k * row_bytes, last_sum, head_sums(product, in_slice, depth))
                for k in range(count):
                    top = larger(top, load(weights_at + k * row_bytes, last_head, no_weights))
                for k in range(repeats):
                    store(repeated_at + k * row_bytes, last_head, top)
                exp_rows(weights_at, count * row_bytes, repeated_at, repeats * row_bytes, flat)
                shrink = exp_difference(before, top)
                store(factor_at, last_head, shrink)
                tile_total = no_weights
                for k in range(count):
                    tile_total = add(tile_total, load(weights_at + k * row_bytes, last_head, no_weights))
                row_total = add(multiply(row_total, shrink), tile_total)
                if weighs:
                    weigh_edges(weights_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    own[0], sources = row, indices[edge : edge + count]
                    drop_weights(weights, num_heads, target_id, own, source_id, sources, drop, memory)
                for part in range(num_slices):
                    total_of_part = zero
                    at = weights_at + part * in_slice * size
                    base = x + part * slice_bytes
                    for k in range(count):
                        source = np.intp(indices[np.uint64(edge + k)])
                        weight = spread(at + k * row_bytes, zero, in_slice, depth)
                        total_of_part = add(total_of_part, multiply(load(base + source * x_stride, last, zero), weight))
                    kept = spread(factor_at + part * in_slice * size, zero, in_slice, depth)
                    old = load(out + part * slice_bytes, last, zero)
                    store(out + part * slice_bytes, last, add(multiply(old, kept), total_of_part))
                edge += count
            store(maximum + row * row_bytes, last_head, top)
            store(total + row * row_bytes, last_head, row_total)

    return RowLoop(add_edges, bits, length + (repeats + 1) * num_heads)
