"""The compiled loops of :mod:`fullgnn.kernels.edges.dynamic_attention`, backward. Importing this module imports numba.

As in ``_attention_backward_cpu.py``, one loop pulls the gradients of targets, another those of sources, tile by tile;
each of them reads the rows of a tile twice, the second time from the L1 cache. A loop holds four slices of rows at a
time, so their width follows the registers, see ``row_lines``. Loops that hold two would lose more in ``head_sums``,
which adds few heads as slowly as many, than they would gain. With p the softmax and c the factors of the edges,

    logits, dots    of both rows of an edge, and <grad of the target, row of X of the source>, head by head
    gradients       p (c dots - dot) of the logits
    rows            gradients, times the slope where the LeakyReLU has it, added; for a source c p grad as well
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
from fullgnn.kernels.support.vectors import add, load, prefetch, row_lines, store, zeros


@functools.cache
def target_gradient_loop(bits: int, num_heads: int, depth: int) -> RowLoop:
    """The loop that adds the gradients of some targets' rows, and their parts of the gradient of the vector."""
    heads = Heads(bits, num_heads, depth, row_lines())
    (lanes, num_vectors, last), size = heads.columns, heads.size
    head_lanes, head_vectors, last_head = heads.weights
    last_sum = heads.layout(heads.heads)[2]
    row_bytes, slice_bytes, in_slice = num_heads * size, heads.slice_bytes, heads.heads
    full_lanes, num_slices, tile = heads.full_lanes, heads.num_slices, tile_edges(heads)
    repeats = full_lanes // math.gcd(full_lanes, num_heads)  # rows of weights that fill whole vectors
    length = tile * num_heads + full_lanes

    @compiled(bits, num_heads, depth)
    def dynamic_target_gradient(
        indptr,
        indices,
        first_row,
        stop_row,
        scratch,
        vector,
        x_target,
        x,
        x_stride,
        slope,
        table,
        grad,
        grad_x_target,
        grad_vector,
        edge_weight,
        target_id,
        source_id,
        drop,
    ):
        """Add the gradients of ``x_target`` of some targets, and their parts of that of ``vector``.

        Args:
            vector, x_target, x, table, grad, grad_x_target, grad_vector: addresses; all but ``x`` are contiguous.
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
        weights_at = dots_at + length * size
        repeated_at = weights_at + length * size
        for row in range(first_row, stop_row):
            edge, end = np.intp(indptr[row]), np.intp(indptr[row + 1])
            if edge == end:
                continue
            of_row = table + row * 3 * row_bytes
            top, inverse = load(of_row, last_head, no_weights), load(of_row + row_bytes, last_head, no_weights)
            dot = load(of_row + 2 * row_bytes, last_head, no_weights)
            for k in range(repeats):
                store(repeated_at + k * row_bytes, last_head, top)
            while edge < end:
                count = min(tile, end - edge)
                for k in range(count):
                    prefetch(x + np.intp(indices[np.uint64(edge + k)]) * x_stride, zero)
                for part in range(num_slices):
                    place = (row * num_slices + part) * slice_bytes
                    of_target, of_grad = load(x_target + place, last, zero), load(grad + place, last, zero)
                    factors = load(vector + part * slice_bytes, last, zero)
                    base, at = x + part * slice_bytes, part * in_slice * size
                    for k in range(count):
                        neighbour = load(base + np.intp(indices[np.uint64(edge + k)]) * x_stride, last, zero)
                        ends = add(neighbour, of_target)
                        logits = head_sums(multiply(sloped(ends, ends, slope), factors), in_slice, depth)
                        store(weights_at + at + k * row_bytes, last_sum, logits)
                        sums = head_sums(multiply(neighbour, of_grad), in_slice, depth)
                        store(dots_at + at + k * row_bytes, last_sum, sums)
                at = 0
                for place in range(0, count * row_bytes, full_lanes * size):
                    logits = load(weights_at + place, 0, flat)
                    store(weights_at + place, 0, exp_difference(logits, load(repeated_at + at, 0, flat)))
                    at += full_lanes * size
                    if at == repeats * row_bytes:
                        at = 0
                if weighs:
                    weigh_edges(dots_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    own[0], sources = row, indices[edge : edge + count]
                    drop_weights(dots, num_heads, target_id, own, source_id, sources, drop, memory)
                for k in range(count):
                    weight = multiply(load(weights_at + k * row_bytes, last_head, no_weights), inverse)
                    difference = subtract(load(dots_at + k * row_bytes, last_head, no_weights), dot)
                    store(weights_at + k * row_bytes, last_head, multiply(weight, difference))
                for part in range(num_slices):
                    place = (row * num_slices + part) * slice_bytes
                    of_target, factors = (
                        load(x_target + place, last, zero),
                        load(vector + part * slice_bytes, last, zero),
                    )
                    base, at = x + part * slice_bytes, weights_at + part * in_slice * size
                    total, of_vector = zero, zero
                    for k in range(count):
                        neighbour = load(base + np.intp(indices[np.uint64(edge + k)]) * x_stride, last, zero)
                        ends = add(neighbour, of_target)
                        gradient = sloped(spread(at + k * row_bytes, zero, in_slice, depth), ends, slope)
                        total, of_vector = add(total, gradient), add(of_vector, multiply(gradient, ends))
                    old = load(grad_x_target + place, last, zero)
                    store(grad_x_target + place, last, add(old, multiply(total, factors)))
                    store(grad_vector + place, last, add(load(grad_vector + place, last, zero), of_vector))
                edge += count

    return RowLoop(dynamic_target_gradient, bits, 2 * length + repeats * num_heads)


@functools.cache
def source_gradient_loop(bits: int, num_heads: int, depth: int) -> RowLoop:
    """The loop that computes the gradients of some sources' rows."""
    heads = Heads(bits, num_heads, depth, row_lines())
    (lanes, num_vectors, last), size = heads.columns, heads.size
    head_lanes, head_vectors, last_head = heads.weights
    last_sum = heads.layout(heads.heads)[2]
    row_bytes, slice_bytes, in_slice = num_heads * size, heads.slice_bytes, heads.heads
    full_lanes, num_slices, tile = heads.full_lanes, heads.num_slices, tile_edges(heads)
    length, stride = tile * num_heads + full_lanes, num_slices * slice_bytes

    @compiled(bits, num_heads, depth)
    def dynamic_source_gradient(
        indptr,
        targets,
        first_row,
        stop_row,
        scratch,
        vector,
        x_target,
        x,
        x_stride,
        slope,
        table,
        grad,
        grad_x,
        edge_weight,
        target_id,
        source_id,
        drop,
    ):
        """Write the gradients of ``x`` of some sources.

        Args:
            indptr, targets: fields of the ``Transposed``.
            vector, x_target, x, table, grad, grad_x: addresses; all but ``x`` are contiguous.
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
        dots, weights, dropped = scratch[:length], scratch[length : 2 * length], scratch[2 * length : 3 * length]
        dots_at = scratch.ctypes.data
        weights_at = dots_at + length * size
        tops_at = weights_at + 2 * length * size
        for row in range(first_row, stop_row):
            edge, end = np.intp(indptr[row]), np.intp(indptr[row + 1])
            out = grad_x + row * stride
            for part in range(num_slices):
                store(out + part * slice_bytes, last, zero)
            while edge < end:
                count = min(tile, end - edge)
                for k in range(count):
                    target = np.intp(targets[np.uint64(edge + k)])
                    prefetch(x_target + target * stride, zero)
                    prefetch(grad + target * stride, zero)
                    top = load(table + target * 3 * row_bytes, last_head, no_weights)
                    store(tops_at + k * row_bytes, last_head, top)
                for part in range(num_slices):
                    of_x = load(x + row * x_stride + part * slice_bytes, last, zero)
                    factors = load(vector + part * slice_bytes, last, zero)
                    at = part * in_slice * size
                    for k in range(count):
                        place = np.intp(targets[np.uint64(edge + k)]) * stride + part * slice_bytes
                        ends = add(of_x, load(x_target + place, last, zero))
                        logits = head_sums(multiply(sloped(ends, ends, slope), factors), in_slice, depth)
                        store(weights_at + at + k * row_bytes, last_sum, logits)
                        sums = head_sums(multiply(load(grad + place, last, zero), of_x), in_slice, depth)
                        store(dots_at + at + k * row_bytes, last_sum, sums)
                for place in range(0, count * row_bytes, full_lanes * size):
                    logits = load(weights_at + place, 0, flat)
                    store(weights_at + place, 0, exp_difference(logits, load(tops_at + place, 0, flat)))
                if weighs:
                    weigh_edges(dots_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    dropped[:] = 1
                    own[0], ends_of_edges = row, targets[edge : edge + count]
                    drop_weights(dropped, num_heads, target_id, ends_of_edges, source_id, own, drop, memory)
                    for place in range(count * num_heads):
                        dots[place] *= dropped[place]
                for k in range(count):
                    of_target = table + np.intp(targets[np.uint64(edge + k)]) * 3 * row_bytes
                    inverse = load(of_target + row_bytes, last_head, no_weights)
                    dot = load(of_target + 2 * row_bytes, last_head, no_weights)
                    weight = multiply(load(weights_at + k * row_bytes, last_head, no_weights), inverse)
                    difference = subtract(load(dots_at + k * row_bytes, last_head, no_weights), dot)
                    store(weights_at + k * row_bytes, last_head, weight)
                    store(dots_at + k * row_bytes, last_head, multiply(weight, difference))
                if weighs:
                    weigh_edges(weights_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    for place in range(count * num_heads):
                        weights[place] *= dropped[place]
                for part in range(num_slices):
                    of_x = load(x + row * x_stride + part * slice_bytes, last, zero)
                    factors = load(vector + part * slice_bytes, last, zero)
                    at = part * in_slice * size
                    total, of_logits = zero, zero
                    for k in range(count):
                        place = np.intp(targets[np.uint64(edge + k)]) * stride + part * slice_bytes
                        ends = add(of_x, load(x_target + place, last, zero))
                        gradient = spread(dots_at + at + k * row_bytes, zero, in_slice, depth)
                        of_logits = add(of_logits, sloped(gradient, ends, slope))
                        weight = spread(weights_at + at + k * row_bytes, zero, in_slice, depth)
                        total = add(total, multiply(load(grad + place, last, zero), weight))
                    total = add(total, multiply(of_logits, factors))
                    old = load(out + part * slice_bytes, last, zero)
                    store(out + part * slice_bytes, last, add(old, total))
                edge += count

    return RowLoop(dynamic_source_gradient, bits, 4 * length)
