"""The compiled operators of :mod:`fullgnn.bench.separate`. Importing this module imports numba.

A hash table is an array of keys, -1 where a slot is free, and one of values; its length is a power of two. A key is
sought from its own slot on, slot after slot (linear probing).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np

from fullgnn.kernels.dropout import _philox_cpu
from fullgnn.kernels.dropout._philox_cpu import SHIFT
from fullgnn.kernels.support import _atomics_cpu
from fullgnn.kernels.support.vectors import compiled_with
from fullgnn.sampling import _neighbors_cpu
from fullgnn.sampling._neighbors_cpu import TILE, UNIFORM, _draw_uniform

compiled = compiled_with(_philox_cpu, _atomics_cpu, _neighbors_cpu)
"""``compiled`` for loops that call functions of these modules."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: spreads consecutive keys over the table
S6, M63, ONE = np.uint64(6), np.uint64(63), np.uint64(1)


@compiled()
def sample_neighbors(indptr, indices, targets, first, last, fanout, hop, key_0, key_1, epoch, starts, src, dst):
    """``SampleNeighbors`` of targets ``first`` to ``last``, without replacement.

    Args:
        starts: (num_targets + 1,) int64, where the edges of each target begin in ``src`` and ``dst``, which get GLOBAL
            ids.
    """
    groups = max(1, (fanout + 3) // 4)
    node, group = np.empty(TILE * groups, np.uint64), np.empty(TILE * groups, np.uint64)
    word, drawn = np.empty(TILE * groups * 4, np.uint32), np.empty(TILE * max(1, fanout), np.int64)
    marks = np.zeros(64, np.uint64)
    for begin in range(first, last, TILE):
        end = min(begin + TILE, last)
        if fanout >= 0:
            marks = _draw_uniform(
                indptr, targets, begin, end, fanout, UNIFORM, np.uint64(hop), (key_0, key_1, epoch),
                indices.ctypes.data, node, group, word, marks, drawn,
            )  # fmt: skip
        used = 0
        for i in range(begin, end):
            v, edge = targets[i], starts[i]
            count = starts[i + 1] - edge
            whole = count == indptr[v + 1] - indptr[v]
            for k in range(count):
                src[edge + k] = indices[indptr[v] + k if whole else drawn[used + k]]
                dst[edge + k] = v
            if not whole:
                used += count


@numba.njit(inline="always")
def _slot_of(keys, key):
    """The slot that holds ``key``, or the free one where it belongs."""
    mask = np.uint64(len(keys) - 1)
    slot = (np.uint64(key) * GOLDEN >> SHIFT) & mask
    while keys[slot] != key and keys[slot] >= 0:
        slot = (slot + ONE) & mask
    return slot


@compiled()
def insert(ids, keys, values, nodes, count):
    """Give each of ``ids`` that the table does not have yet the next number, from ``count`` on, and note it in
    ``nodes``.

    Returns:
        the number of different ids.
    """
    for e in range(len(ids)):
        slot = _slot_of(keys, ids[e])
        if keys[slot] < 0:
            keys[slot], values[slot], nodes[count] = ids[e], count, ids[e]
            count += 1
    return count


@compiled()
def look_up(ids, keys, values, local):
    """The numbers of ``ids``, all of which the table has."""
    for e in range(len(ids)):
        local[e] = values[_slot_of(keys, ids[e])]


@compiled()
def insert_by_bitmap(ids, keys, values, bits, nodes, count, local):
    """The numbers of ``ids``. Where the bit of an id is set, the table has it already; otherwise it gets the next
    number, from ``count`` on, without a search for it.

    Returns:
        the number of different ids.
    """
    mask = np.uint64(len(keys) - 1)
    for e in range(len(ids)):
        u = np.uint64(ids[e])
        if bits[u >> S6] >> (u & M63) & ONE:
            local[e] = values[_slot_of(keys, ids[e])]
            continue
        bits[u >> S6] |= ONE << (u & M63)
        slot = (u * GOLDEN >> SHIFT) & mask
        while keys[slot] >= 0:
            slot = (slot + ONE) & mask
        keys[slot], values[slot], nodes[count], local[e] = ids[e], count, ids[e], count
        count += 1
    return count


@compiled()
def clear_bits(ids, bits):
    """Clear the bits of ``ids``."""
    for e in range(len(ids)):
        bits[np.uint64(ids[e]) >> S6] = np.uint64(0)
