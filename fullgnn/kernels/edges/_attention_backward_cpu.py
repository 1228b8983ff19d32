"""The compiled loops of :mod:`fullgnn.kernels.edges.attention`, backward. Importing this module imports numba.

One loop pulls the gradients of targets, another those of sources, each with the weights and dot products that it needs
of its edges. They process their rows in tiles, as ``_attention_cpu.py`` explains; with p the softmax and c the factors
of the edges,

    dots        <grad of the target, row of X of the source>, head by head
    gradients   p (c dots - dot), times the slope where the LeakyReLU has it, added
    rows        c p grad, added to the gradient of a row of X (sources only)
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import functools
import math

import numpy as np

from fullgnn.kernels.edges._attention_cpu import tile_edges
from fullgnn.kernels.edges._mask_cpu import drop_weights, mask_memory
from fullgnn.kernels.edges._rows_cpu import RowLoop
from fullgnn.kernels.edges._vectors_cpu import (
    Heads,
    compiled,
    exp_difference,
    head_sums,
    multiply,
    sloped,
    spread,
    subtract,
    weigh_edges,
)
from fullgnn.kernels.support.vectors import add, load, prefetch, store, zeros


@functools.cache
def target_gradient_loop(bits: int, num_heads: int, depth: int) -> RowLoop:
    """The loop that adds the gradients of some targets' logits."""
    heads = Heads(bits, num_heads, depth)
    (lanes, num_vectors, last), size = heads.columns, heads.size
    head_lanes, head_vectors, last_head = heads.weights
    last_sum = heads.layout(heads.heads)[2]
    row_bytes, slice_bytes, in_slice = num_heads * size, heads.slice_bytes, heads.heads
    full_lanes, num_slices, tile = heads.full_lanes, heads.num_slices, tile_edges(heads)
    repeats = full_lanes // math.gcd(full_lanes, num_heads)  # rows of weights that fill whole vectors
    length = tile * num_heads + full_lanes

    @compiled(bits, num_heads, depth)
    def target_gradient(
        indptr,
        indices,
        first_row,
        stop_row,
        scratch,
        logit_source,
        x,
        x_stride,
        slope,
        table,
        grad,
        grad_logit_target,
        edge_weight,
        target_id,
        source_id,
        drop,
    ):
        """Add the gradients of ``logit_target`` of some targets.

        Args:
            logit_source, x, table, grad, grad_logit_target: addresses; all but ``x`` are contiguous.
            x_stride: row stride in bytes.
            edge_weight, target_id, source_id, drop: ``FactorArguments``.
        """
        zero, no_weights, flat = (
            zeros(bits, lanes, num_vectors),
            zeros(bits, head_lanes, head_vectors),
            zeros(bits, full_lanes, 1),
        )
        weighs, masked = len(edge_weight) > 0, len(target_id) > 0
        memory = mask_memory(tile if masked else 0, num_heads)
        own = np.empty(1, np.int32)
        dots = scratch[:length]
        dots_at = scratch.ctypes.data
        logits_at = dots_at + length * size
        weights_at = logits_at + length * size
        repeated_at = weights_at + length * size
        for row in range(first_row, stop_row):
            edge, end = np.intp(indptr[row]), np.intp(indptr[row + 1])
            if edge == end:
                continue
            of_row = table + row * 4 * row_bytes
            of_target, top = load(of_row, last_head, no_weights), load(of_row + row_bytes, last_head, no_weights)
            inverse = load(of_row + 2 * row_bytes, last_head, no_weights)
            dot = load(of_row + 3 * row_bytes, last_head, no_weights)
            for k in range(repeats):
                store(repeated_at + k * row_bytes, last_head, top)
            gradient = load(grad_logit_target + row * row_bytes, last_head, no_weights)
            while edge < end:
                count = min(tile, end - edge)
                for k in range(count):
                    source = np.intp(indices[np.uint64(edge + k)])
                    prefetch(x + source * x_stride, zero)
                    of_source = load(logit_source + source * row_bytes, last_head, no_weights)
                    store(logits_at + k * row_bytes, last_head, add(of_source, of_target))
                at = 0
                for place in range(0, count * row_bytes, full_lanes * size):
                    logit, base = load(logits_at + place, 0, flat), load(repeated_at + at, 0, flat)
                    store(weights_at + place, 0, exp_difference(sloped(logit, logit, slope), base))
                    at += full_lanes * size
                    if at == repeats * row_bytes:
                        at = 0
                for part in range(num_slices):
                    of_grad = load(grad + row * num_slices * slice_bytes + part * slice_bytes, last, zero)
                    base, at = x + part * slice_bytes, dots_at + part * in_slice * size
                    for k in range(count):
                        source = np.intp(indices[np.uint64(edge + k)])
                        product = multiply(load(base + source * x_stride, last, zero), of_grad)
                        store(at + k * row_bytes, last_sum, head_sums(product, in_slice, depth))
                if weighs:
                    weigh_edges(dots_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    own[0], sources = row, indices[edge : edge + count]
                    drop_weights(dots, num_heads, target_id, own, source_id, sources, drop, memory)
                of_tile = no_weights
                for k in range(count):
                    weight = multiply(load(weights_at + k * row_bytes, last_head, no_weights), inverse)
                    of_edge = multiply(weight, subtract(load(dots_at + k * row_bytes, last_head, no_weights), dot))
                    of_tile = add(
                        of_tile, sloped(of_edge, load(logits_at + k * row_bytes, last_head, no_weights), slope)
                    )
                gradient = add(gradient, of_tile)
                edge += count
            store(grad_logit_target + row * row_bytes, last_head, gradient)

    return RowLoop(target_gradient, bits, 3 * length + repeats * num_heads)


@functools.cache
def source_gradient_loop(bits: int, num_heads: int, depth: int) -> RowLoop:
    """The loop that computes the gradients of some sources' logits and rows."""
    heads = Heads(bits, num_heads, depth)
    (lanes, num_vectors, last), size = heads.columns, heads.size
    head_lanes, head_vectors, last_head = heads.weights
    last_sum = heads.layout(heads.heads)[2]
    row_bytes, slice_bytes, in_slice = num_heads * size, heads.slice_bytes, heads.heads
    full_lanes, num_slices, tile = heads.full_lanes, heads.num_slices, tile_edges(heads)
    length, grad_stride = tile * num_heads + full_lanes, num_slices * slice_bytes

    @compiled(bits, num_heads, depth)
    def source_gradient(
        indptr,
        targets,
        first_row,
        stop_row,
        scratch,
        logit_source,
        x,
        x_stride,
        slope,
        table,
        grad,
        grad_logit_source,
        grad_x,
        edge_weight,
        target_id,
        source_id,
        drop,
    ):
        """Write the gradients of ``logit_source`` and ``x`` of some sources.

        Args:
            indptr, targets: fields of the ``Transposed``.
            logit_source, x, table, grad, grad_logit_source, grad_x: addresses; all but ``x`` are contiguous.
            x_stride: row stride in bytes.
            edge_weight, target_id, source_id, drop: ``FactorArguments``.
        """
        zero, no_weights, flat = (
            zeros(bits, lanes, num_vectors),
            zeros(bits, head_lanes, head_vectors),
            zeros(bits, full_lanes, 1),
        )
        weighs, masked = len(edge_weight) > 0, len(target_id) > 0
        memory = mask_memory(tile if masked else 0, num_heads)
        own = np.empty(1, np.int32)
        dots, weights, factors = scratch[:length], scratch[length : 2 * length], scratch[2 * length : 3 * length]
        dots_at = scratch.ctypes.data
        weights_at = dots_at + length * size
        logits_at = weights_at + 2 * length * size
        for row in range(first_row, stop_row):
            edge, end = np.intp(indptr[row]), np.intp(indptr[row + 1])
            of_source = load(logit_source + row * row_bytes, last_head, no_weights)
            out = grad_x + row * grad_stride
            for part in range(num_slices):
                store(out + part * slice_bytes, last, zero)
            gradient = no_weights
            while edge < end:
                count = min(tile, end - edge)
                for k in range(count):
                    target = np.intp(targets[np.uint64(edge + k)])
                    prefetch(grad + target * grad_stride, zero)
                    of_target = table + target * 4 * row_bytes
                    prefetch(of_target + 2 * row_bytes, no_weights)  # read again for the gradients
                    logit = add(load(of_target, last_head, no_weights), of_source)
                    store(logits_at + k * row_bytes, last_head, logit)
                    top = load(of_target + row_bytes, last_head, no_weights)
                    store(weights_at + k * row_bytes, last_head, subtract(sloped(logit, logit, slope), top))
                for place in range(0, count * row_bytes, full_lanes * size):
                    store(weights_at + place, 0, exp_difference(load(weights_at + place, 0, flat), flat))
                for part in range(num_slices):
                    of_x = load(x + row * x_stride + part * slice_bytes, last, zero)
                    base, at = grad + part * slice_bytes, dots_at + part * in_slice * size
                    for k in range(count):
                        target = np.intp(targets[np.uint64(edge + k)])
                        product = multiply(load(base + target * grad_stride, last, zero), of_x)
                        store(at + k * row_bytes, last_sum, head_sums(product, in_slice, depth))
                if weighs:
                    weigh_edges(dots_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    factors[:] = 1
                    own[0], ends = row, targets[edge : edge + count]
                    drop_weights(factors, num_heads, target_id, ends, source_id, own, drop, memory)
                    for place in range(count * num_heads):
                        dots[place] *= factors[place]
                of_tile = no_weights
                for k in range(count):
                    of_target = table + np.intp(targets[np.uint64(edge + k)]) * 4 * row_bytes
                    weight = multiply(
                        load(weights_at + k * row_bytes, last_head, no_weights),
                        load(of_target + 2 * row_bytes, last_head, no_weights),
                    )
                    store(weights_at + k * row_bytes, last_head, weight)
                    dot = load(of_target + 3 * row_bytes, last_head, no_weights)
                    of_edge = multiply(weight, subtract(load(dots_at + k * row_bytes, last_head, no_weights), dot))
                    of_tile = add(
                        of_tile, sloped(of_edge, load(logits_at + k * row_bytes, last_head, no_weights), slope)
                    )
                gradient = add(gradient, of_tile)
                if weighs:
                    weigh_edges(weights_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    for place in range(count * num_heads):
                        weights[place] *= factors[place]
                for part in range(num_slices):
                    base, at = grad + part * slice_bytes, weights_at + part * in_slice * size
                    total = zero
                    for k in range(count):
                        target = np.intp(targets[np.uint64(edge + k)])
                        weight = spread(at + k * row_bytes, zero, in_slice, depth)
                        total = add(total, multiply(load(base + target * grad_stride, last, zero), weight))
                    place = out + part * slice_bytes
                    store(place, last, add(load(place, last, zero), total))
                edge += count
            store(grad_logit_source + row * row_bytes, last_head, gradient)

    return RowLoop(source_gradient, bits, 4 * length)
