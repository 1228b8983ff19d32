"""The dropout of ``mask.py``, beside edge weights, inside compiled loops. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from torch import Tensor

from fullgnn.kernels.dropout._philox_cpu import LOW, MULTIPLIER_0, MULTIPLIER_1, SHIFT, WEYL_0, WEYL_1
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.support.vectors import broadcast, shuffle_mask

EIGHT, SIXTEEN, TWENTY_FOUR = np.uint64(8), np.uint64(16), np.uint64(24)
NO_IDS = np.empty(0, np.int64)

CALLS = 16  # Philox calls at a time

Drop = tuple[np.uint32, float, np.uint64, np.uint64, np.uint64, np.uint64]
"""Threshold, scale, layer, epoch and the two words of the key."""

FactorArguments = tuple[np.ndarray, np.ndarray, np.ndarray, Drop]
"""The arguments of the factors in a loop: edge_weight, empty for no weights; target_id and source_id, empty for no
dropout; and the other numbers of the dropout."""


def factor_arguments(values: Tensor | None, mask: EdgeMask | None, like: Tensor) -> FactorArguments:
    """The arguments of the factors of edges.

    Args:
        values: (E,) edge weights, in the order in which the loop reads the edges; None: all 1.
        mask: the dropout; None: none.
        like: a tensor of the dtype of ``values``.
    """
    edge_weight = (like.new_empty(0) if values is None else values.contiguous()).numpy()
    if mask is None:
        zero = np.uint64(0)
        return edge_weight, NO_IDS, NO_IDS, (np.uint32(0), 1.0, zero, zero, zero, zero)
    layer, epoch, key_0, key_1 = (np.uint64(word) for word in (mask.layer, int(mask.epoch) & int(LOW), *mask.key))
    ids = (mask.target_id.contiguous().numpy(), mask.source_id.contiguous().numpy())
    return edge_weight, *ids, (np.uint32(mask.threshold), mask.scale, layer, epoch, key_0, key_1)


@numba.njit(nogil=True)
def mask_memory(tile, num_heads):
    """Memory for the counters and words of ``tile`` edges: (3, calls) uint64 and (4 * calls,) uint32."""
    num_calls = -(-tile * ((num_heads + 3) // 4) // CALLS) * CALLS
    return np.zeros((3, num_calls), np.uint64), np.empty(4 * num_calls, np.uint32)


@numba.njit(nogil=True)
def drop_weights(weights, num_heads, target_id, targets, source_id, sources, drop, memory):
    """Multiply (count, num_heads) ``weights`` of edges by their factors of the dropout.

    Args:
        targets, sources: (count,) LOCAL ends of the edges; an array of one number is the end of all of them.
        target_id, source_id, drop: see ``FactorArguments``.
        memory: ``mask_memory`` for count edges or more.
    """
    (threshold, scale, layer, epoch, key_0, key_1), (counters, word) = drop, memory
    count = max(len(targets), len(sources))
    num_groups = (num_heads + 3) // 4  # Philox calls per edge
    num_calls = count * num_groups
    for k in range(count):
        target = np.uint64(target_id[targets[k if len(targets) > 1 else 0]])
        source = np.uint64(source_id[sources[k if len(sources) > 1 else 0]])
        high = (target >> SHIFT) + (source >> SHIFT << EIGHT) + (layer << TWENTY_FOUR)
        for group in range(num_groups):
            call = k * num_groups + group
            counters[0, call], counters[1, call] = target & LOW, source & LOW
            counters[2, call] = high + (np.uint64(group) << SIXTEEN)
    address, plane = counters.ctypes.data, counters.strides[0]
    for call in range(0, num_calls, CALLS):  # the last words may be of counters of other edges, and are not read
        philox_words(address + 8 * call, plane, epoch, key_0, key_1, word.ctypes.data + 16 * call)
    factor, zero = weights.dtype.type(scale), weights.dtype.type(0)
    if num_heads % 4 == 0:
        for place in range(count * num_heads):
            scaled = weights[place] * factor
            weights[place] = scaled if word[place] >= threshold else zero
    else:
        for k in range(count):
            for head in range(num_heads):
                scaled = weights[k * num_heads + head] * factor
                weights[k * num_heads + head] = scaled if word[4 * k * num_groups + head] >= threshold else zero


@intrinsic
def philox_words(_, counters, plane, epoch, key_0, key_1, words):
    """Write the words of ``CALLS`` calls of Philox4x32-10, four after four, to the address ``words``.

    These are the rounds of ``_philox_cpu._philox`` in vectors: numba vectorises that function only where it can prove
    that arrays do not overlap.

    Args:
        counters: address of the first words of the counters, uint64 below 2^32; the second and third words follow
            ``plane`` and 2 ``plane`` bytes later.
        epoch, key_0, key_1: uint64 below 2^32; ``epoch`` is the fourth word of every counter.
    """
    wide, narrow = ir.VectorType(ir.IntType(64), CALLS), ir.VectorType(ir.IntType(32), CALLS)

    def codegen(context, builder, signature, args):
        address, plane, *scalars, out = args

        def constant(number: np.uint64) -> ir.Constant:
            return ir.Constant(wide, [int(number)] * CALLS)

        def loaded(index: int) -> ir.Value:
            place = builder.add(address, builder.mul(plane, plane.type(index)))
            return builder.load(builder.inttoptr(place, wide.as_pointer()), align=8)

        def joined(a: ir.Value, b: ir.Value, order: list[int]) -> ir.Value:
            return builder.shuffle_vector(a, b, shuffle_mask(order))

        low, shift = constant(LOW), constant(SHIFT)
        fourth, key_0, key_1 = (builder.and_(broadcast(builder, CALLS, number), low) for number in scalars)
        counter = [*(builder.and_(loaded(index), low) for index in range(3)), fourth]
        for _ in range(10):
            product_0 = builder.mul(counter[0], constant(MULTIPLIER_0))
            product_1 = builder.mul(counter[2], constant(MULTIPLIER_1))
            counter = [
                builder.xor(builder.xor(builder.lshr(product_1, shift), counter[1]), key_0),
                builder.and_(product_1, low),
                builder.xor(builder.xor(builder.lshr(product_0, shift), counter[3]), key_1),
                builder.and_(product_0, low),
            ]
            key_0 = builder.and_(builder.add(key_0, constant(WEYL_0)), low)
            key_1 = builder.and_(builder.add(key_1, constant(WEYL_1)), low)
        first, second, third, last = (builder.trunc(word, narrow) for word in counter)
        every = list(range(2 * CALLS))
        four = joined(joined(first, second, every), joined(third, last, every),
                      [k * CALLS + call for call in range(CALLS) for k in range(4)])  # fmt: skip
        builder.store(four, builder.inttoptr(out, four.type.as_pointer()), align=4)
        return context.get_dummy_value()

    word = types.uint64
    return types.void(types.intp, types.intp, word, word, word, types.intp), codegen
