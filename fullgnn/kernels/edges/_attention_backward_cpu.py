"""The compiled loops of :mod:`fullgnn.kernels.edges.attention`, backward. Importing this module imports numba.

One loop pulls the gradients of targets, another those of sources, each with the weights and dot products that it needs
of its edges. They process their rows in tiles, as ``_attention_cpu.py`` explains; with p the softmax and c the factors
of the edges,

    logits      of both ends of an edge; in dynamic attention of the rows at both ends
    dots        <grad of the target, row of X of the source>, head by head
    gradients   p (c dots - dot) of the logits, times the slope where the LeakyReLU has it, added
    rows        c p grad, added to the gradient of a row of X (sources only)

In dynamic attention the gradients have a number for each column. Its loops read the rows of a tile twice, the second
time from the L1 cache, and hold four slices of rows at a time, so their width follows the registers, see ``row_lines``.
Loops that hold two would lose more in ``head_sums``, which adds few heads as slowly as many, than they would gain.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import functools
import math

import numpy as np
from torch import Tensor

from fullgnn.kernels.edges._attention_cpu import number_like, tile_edges
from fullgnn.kernels.edges._mask_cpu import drop_weights, factor_arguments, mask_memory
from fullgnn.kernels.edges._rows_cpu import RowLoop, over_rows
from fullgnn.kernels.edges._vectors_cpu import (
    Heads,
    compiled,
    exp_difference,
    exp_rows,
    head_sums,
    multiply,
    sloped,
    spread,
    subtract,
    weigh_edges,
)
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.support.aligned import LINE_BYTES, MAX_ROW_LINES, row_lines
from fullgnn.kernels.support.vectors import add, load, prefetch, store, zeros


def attend_backward(
    stage: AttentionStage, transposed: Transposed, rows: AttentionRows, outputs: tuple[Tensor, ...]
) -> None:
    """See :func:`fullgnn.kernels.edges.attention.attend_backward`, whose results are written to ``outputs``. The
    tensors are contiguous, and so are the rows of X."""
    x, csr, size = stage.x, stage.csr, stage.x.element_size()
    key = (8 * size, stage.num_heads, stage.depth, stage.dynamic)
    ends = (stage.of_sources, rows.of_targets, x, x.stride(0) * size, number_like(x, stage.slope))
    given = (*ends, rows.table, rows.grad)
    factors = factor_arguments(csr.values, stage.mask, x)
    over_rows(target_gradient_loop(*key), csr, *given, rows.outputs, factors)
    factors = factor_arguments(transposed.values, stage.mask, x)
    over_rows(source_gradient_loop(*key), transposed, *given, outputs, factors)


@functools.cache
def target_gradient_loop(bits: int, num_heads: int, depth: int, dynamic: bool) -> RowLoop:
    """The loop that adds the gradients of some targets' logits; in dynamic attention, those of their rows, and their
    parts of the gradient of the vector."""
    heads = Heads(bits, num_heads, depth, row_lines() if dynamic else MAX_ROW_LINES)
    (lanes, num_vectors, last), size = heads.columns, heads.size
    head_lanes, head_vectors, last_head = heads.weights
    last_sum = heads.layout(heads.heads)[2]
    row_bytes, slice_bytes, in_slice = num_heads * size, heads.slice_bytes, heads.heads
    full_lanes, num_slices, tile = heads.full_lanes, heads.num_slices, tile_edges(heads)
    repeats = full_lanes // math.gcd(full_lanes, num_heads)  # rows of weights that fill whole vectors
    length = tile * num_heads + full_lanes
    table_bytes, top_place = (3 * row_bytes, 0) if dynamic else (4 * row_bytes, row_bytes)

    @compiled(bits, num_heads, depth, dynamic)
    def target_gradient(
        indptr,
        indices,
        first_row,
        stop_row,
        scratch,
        of_sources,
        of_targets,
        x,
        x_stride,
        slope,
        table,
        grad,
        out,
        factors,
    ):
        """Add the gradients of some targets.

        Args:
            of_sources, of_targets: addresses of the logits; with ``dynamic``, of the vector and of the targets' rows.
            x, table, grad: addresses; all but ``x`` are contiguous.
            x_stride: row stride in bytes.
            out: addresses of the gradients of the targets' logits or rows, and with ``dynamic`` of that of the vector.
            factors: ``FactorArguments``.
        """
        zero, no_weights = zeros(bits, lanes, num_vectors), zeros(bits, head_lanes, head_vectors)
        flat = zeros(bits, full_lanes, 1)
        edge_weight, target_id, source_id, drop = factors
        weighs, masked = len(edge_weight) > 0, len(target_id) > 0
        memory = mask_memory(tile if masked else 0, num_heads)
        own = np.empty(1, np.int32)
        dots = scratch[:length]
        dots_at = scratch.ctypes.data
        weights_at = dots_at + length * size
        logits_at = weights_at + length * size
        tops_at = logits_at + length * size
        for row in range(first_row, stop_row):
            edge, end = np.intp(indptr[row]), np.intp(indptr[row + 1])
            if edge == end:
                continue
            of_row = table + row * table_bytes + top_place
            top, inverse = load(of_row, last_head, no_weights), load(of_row + row_bytes, last_head, no_weights)
            dot = load(of_row + 2 * row_bytes, last_head, no_weights)
            for k in range(repeats):
                store(tops_at + k * row_bytes, last_head, top)
            if not dynamic:
                logit_of_row = load(of_row - row_bytes, last_head, no_weights)
                gradient = load(out[0] + row * row_bytes, last_head, no_weights)
            while edge < end:
                count = min(tile, end - edge)
                for k in range(count):
                    source = np.intp(indices[np.uint64(edge + k)])
                    prefetch(x + source * x_stride, zero)
                    if not dynamic:
                        logit = add(load(of_sources + source * row_bytes, last_head, no_weights), logit_of_row)
                        store(logits_at + k * row_bytes, last_head, logit)
                if not dynamic:
                    at = 0
                    for place in range(0, count * row_bytes, LINE_BYTES):
                        logits = load(logits_at + place, 0, flat)
                        base = load(tops_at + at, 0, flat)
                        store(weights_at + place, 0, exp_difference(sloped(logits, logits, slope), base))
                        at = 0 if at + LINE_BYTES == repeats * row_bytes else at + LINE_BYTES
                for part in range(num_slices):
                    place = (row * num_slices + part) * slice_bytes
                    of_grad = load(grad + place, last, zero)
                    base, at = x + part * slice_bytes, part * in_slice * size
                    if dynamic:
                        of_target = load(of_targets + place, last, zero)
                        vector = load(of_sources + part * slice_bytes, last, zero)
                    for k in range(count):
                        neighbour = load(base + np.intp(indices[np.uint64(edge + k)]) * x_stride, last, zero)
                        if dynamic:
                            ends = add(neighbour, of_target)
                            logits = head_sums(multiply(sloped(ends, ends, slope), vector), in_slice, depth)
                            store(weights_at + at + k * row_bytes, last_sum, logits)
                        sums = head_sums(multiply(neighbour, of_grad), in_slice, depth)
                        store(dots_at + at + k * row_bytes, last_sum, sums)
                if dynamic:
                    exp_rows(weights_at, count * row_bytes, tops_at, repeats * row_bytes, flat)
                if weighs:
                    weigh_edges(dots_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    own[0], sources = row, indices[edge : edge + count]
                    drop_weights(dots, num_heads, target_id, own, source_id, sources, drop, memory)
                of_tile = no_weights
                for k in range(count):
                    weight = multiply(load(weights_at + k * row_bytes, last_head, no_weights), inverse)
                    difference = subtract(load(dots_at + k * row_bytes, last_head, no_weights), dot)
                    grad_logit = multiply(weight, difference)
                    if dynamic:
                        store(weights_at + k * row_bytes, last_head, grad_logit)
                    else:
                        logit = load(logits_at + k * row_bytes, last_head, no_weights)
                        of_tile = add(of_tile, sloped(grad_logit, logit, slope))
                if dynamic:
                    for part in range(num_slices):
                        place = (row * num_slices + part) * slice_bytes
                        of_target = load(of_targets + place, last, zero)
                        vector = load(of_sources + part * slice_bytes, last, zero)
                        base, at = x + part * slice_bytes, weights_at + part * in_slice * size
                        total, of_vector = zero, zero
                        for k in range(count):
                            neighbour = load(base + np.intp(indices[np.uint64(edge + k)]) * x_stride, last, zero)
                            ends = add(neighbour, of_target)
                            of_ends = sloped(spread(at + k * row_bytes, zero, in_slice, depth), ends, slope)
                            total, of_vector = add(total, of_ends), add(of_vector, multiply(of_ends, ends))
                        store(out[0] + place, last, add(load(out[0] + place, last, zero), multiply(total, vector)))
                        store(out[1] + place, last, add(load(out[1] + place, last, zero), of_vector))
                else:
                    gradient = add(gradient, of_tile)
                edge += count
            if not dynamic:
                store(out[0] + row * row_bytes, last_head, gradient)

    return RowLoop(target_gradient, bits, 3 * length + repeats * num_heads)


@functools.cache
def source_gradient_loop(bits: int, num_heads: int, depth: int, dynamic: bool) -> RowLoop:
    """The loop that computes the gradients of some sources' rows and, in static attention, of their logits."""
    heads = Heads(bits, num_heads, depth, row_lines() if dynamic else MAX_ROW_LINES)
    (lanes, num_vectors, last), size = heads.columns, heads.size
    head_lanes, head_vectors, last_head = heads.weights
    last_sum = heads.layout(heads.heads)[2]
    row_bytes, slice_bytes, in_slice = num_heads * size, heads.slice_bytes, heads.heads
    full_lanes, num_slices, tile = heads.full_lanes, heads.num_slices, tile_edges(heads)
    length, stride = tile * num_heads + full_lanes, num_slices * slice_bytes
    table_bytes, top_place = (3 * row_bytes, 0) if dynamic else (4 * row_bytes, row_bytes)

    @compiled(bits, num_heads, depth, dynamic)
    def source_gradient(
        indptr,
        targets,
        first_row,
        stop_row,
        scratch,
        of_sources,
        of_targets,
        x,
        x_stride,
        slope,
        table,
        grad,
        out,
        factors,
    ):
        """Write the gradients of some sources.

        Args:
            indptr, targets: those of the ``Transposed``, whose columns are the targets.
            out: addresses of the gradients of the rows of X, and without ``dynamic`` of those of the logits.
            of_sources, of_targets, x, x_stride, table, grad, factors: those of ``target_gradient``.
        """
        zero, no_weights = zeros(bits, lanes, num_vectors), zeros(bits, head_lanes, head_vectors)
        flat = zeros(bits, full_lanes, 1)
        edge_weight, target_id, source_id, drop = factors
        weighs, masked = len(edge_weight) > 0, len(target_id) > 0
        memory = mask_memory(tile if masked else 0, num_heads)
        own = np.empty(1, np.int32)
        dots, weights, kept = scratch[:length], scratch[length : 2 * length], scratch[2 * length : 3 * length]
        dots_at = scratch.ctypes.data
        weights_at = dots_at + length * size
        tops_at = weights_at + 2 * length * size
        logits_at = tops_at + length * size
        for row in range(first_row, stop_row):
            edge, end = np.intp(indptr[row]), np.intp(indptr[row + 1])
            for part in range(num_slices):
                store(out[0] + row * stride + part * slice_bytes, last, zero)
            gradient = no_weights
            if not dynamic:
                logit_of_row = load(of_sources + row * row_bytes, last_head, no_weights)
            while edge < end:
                count = min(tile, end - edge)
                for k in range(count):
                    target = np.intp(targets[np.uint64(edge + k)])
                    prefetch(grad + target * stride, zero)
                    of_table = table + target * table_bytes + top_place
                    if dynamic:
                        prefetch(of_targets + target * stride, zero)
                        store(tops_at + k * row_bytes, last_head, load(of_table, last_head, no_weights))
                    else:
                        prefetch(of_table + row_bytes, no_weights)  # read again for the gradients
                        logit = add(load(of_table - row_bytes, last_head, no_weights), logit_of_row)
                        store(logits_at + k * row_bytes, last_head, logit)
                        top = load(of_table, last_head, no_weights)
                        store(weights_at + k * row_bytes, last_head, subtract(sloped(logit, logit, slope), top))
                if not dynamic:  # the maxima are subtracted
                    for place in range(0, count * row_bytes, LINE_BYTES):
                        store(weights_at + place, 0, exp_difference(load(weights_at + place, 0, flat), flat))
                for part in range(num_slices):
                    x_row = load(x + row * x_stride + part * slice_bytes, last, zero)
                    at = part * in_slice * size
                    if dynamic:
                        vector = load(of_sources + part * slice_bytes, last, zero)
                    for k in range(count):
                        place = np.intp(targets[np.uint64(edge + k)]) * stride + part * slice_bytes
                        if dynamic:
                            ends = add(x_row, load(of_targets + place, last, zero))
                            logits = head_sums(multiply(sloped(ends, ends, slope), vector), in_slice, depth)
                            store(weights_at + at + k * row_bytes, last_sum, logits)
                        sums = head_sums(multiply(load(grad + place, last, zero), x_row), in_slice, depth)
                        store(dots_at + at + k * row_bytes, last_sum, sums)
                if dynamic:
                    exp_rows(weights_at, count * row_bytes, tops_at, length * size, flat)
                if weighs:
                    weigh_edges(dots_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    kept[:] = 1
                    own[0], ends_of_edges = row, targets[edge : edge + count]
                    drop_weights(kept, num_heads, target_id, ends_of_edges, source_id, own, drop, memory)
                    for place in range(count * num_heads):
                        dots[place] *= kept[place]
                of_tile = no_weights
                for k in range(count):
                    of_table = table + np.intp(targets[np.uint64(edge + k)]) * table_bytes + top_place
                    inverse = load(of_table + row_bytes, last_head, no_weights)
                    dot = load(of_table + 2 * row_bytes, last_head, no_weights)
                    weight = multiply(load(weights_at + k * row_bytes, last_head, no_weights), inverse)
                    store(weights_at + k * row_bytes, last_head, weight)
                    difference = subtract(load(dots_at + k * row_bytes, last_head, no_weights), dot)
                    grad_logit = multiply(weight, difference)
                    if dynamic:
                        store(dots_at + k * row_bytes, last_head, grad_logit)
                    else:
                        logit = load(logits_at + k * row_bytes, last_head, no_weights)
                        of_tile = add(of_tile, sloped(grad_logit, logit, slope))
                gradient = add(gradient, of_tile)
                if weighs:
                    weigh_edges(weights_at, last_head, row_bytes, edge_weight[edge : edge + count], no_weights)
                if masked:
                    for place in range(count * num_heads):
                        weights[place] *= kept[place]
                for part in range(num_slices):
                    x_row = load(x + row * x_stride + part * slice_bytes, last, zero)
                    at = part * in_slice * size
                    total, of_ends = zero, zero
                    for k in range(count):
                        place = np.intp(targets[np.uint64(edge + k)]) * stride + part * slice_bytes
                        if dynamic:
                            ends = add(x_row, load(of_targets + place, last, zero))
                            of_edge = spread(dots_at + at + k * row_bytes, zero, in_slice, depth)
                            of_ends = add(of_ends, sloped(of_edge, ends, slope))
                        weight_of_row = spread(weights_at + at + k * row_bytes, zero, in_slice, depth)
                        total = add(total, multiply(load(grad + place, last, zero), weight_of_row))
                    if dynamic:
                        total = add(total, multiply(of_ends, load(of_sources + part * slice_bytes, last, zero)))
                    to = out[0] + row * stride + part * slice_bytes
                    store(to, last, add(load(to, last, zero), total))
                edge += count
            if not dynamic:
                store(out[1] + row * row_bytes, last_head, gradient)

    return RowLoop(source_gradient, bits, 5 * length)
