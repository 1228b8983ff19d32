"""Simulates a set-associative cache with LRU replacement, compiled by numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np

from fullgnn.kernels.support.vectors import compiled

_NONE = -1


@compiled()
def count_hits(reads, num_lines, num_sets, ways):
    """Count the ``reads`` that hit a cache which is empty at first.

    The slots of a set form a ring from the newest to the oldest; ``newer`` of the newest slot is the oldest slot. A
    read costs the same for any number of ways: a hit moves its slot to the front of the ring, and a miss makes the
    oldest slot the newest without moving it in the ring.

    Args:
        reads: (num_reads,) line ids in the order of reading, each below ``num_lines``.
    """
    slot_of = np.full(num_lines, _NONE, np.int32)
    line_in = np.full(num_sets * ways, _NONE, np.int32)
    newer = np.empty(num_sets * ways, np.int32)
    older = np.empty(num_sets * ways, np.int32)
    newest = np.arange(num_sets) * ways
    for slot in range(num_sets * ways):
        first = slot // ways * ways
        older[slot] = first + (slot + 1) % ways
        newer[slot] = first + (slot - 1) % ways

    num_hits = 0
    for line in reads:
        slot = slot_of[line]
        front = newest[line % num_sets]
        oldest = newer[front]
        if slot != _NONE:
            num_hits += 1
            if slot == front:
                continue
        else:
            slot = oldest
            if line_in[slot] != _NONE:
                slot_of[line_in[slot]] = _NONE
            line_in[slot] = line
            slot_of[line] = slot
        if slot != oldest:
            older[newer[slot]], newer[older[slot]] = older[slot], newer[slot]
            older[slot], newer[slot] = front, oldest
            newer[front], older[oldest] = slot, slot
        newest[line % num_sets] = slot
    return num_hits
