"""The compiled draws of :mod:`fullgnn.tasks.draws`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np
import torch

from fullgnn.graph.links import Lists
from fullgnn.kernels.dropout import _philox_cpu
from fullgnn.kernels.dropout._philox_cpu import LOW, SHIFT, _philox
from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled_with

compiled = compiled_with(_philox_cpu)
"""``compiled`` for loops that call functions of these modules."""

PARALLEL_DRAWS = 1 << 12  # with fewer draws, starting work on a thread costs more than it saves
MIX_0, MIX_1, ONE = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(1)
S27, S30, S31 = np.uint64(27), np.uint64(30), np.uint64(31)


def draw_cpu(
    pairs: Lists,
    first: np.ndarray,
    known: Lists,
    candidates: range,
    key: tuple[int, int],
    epoch: int,
    num_negatives: int,
    batch_size: int,
    num_pairs: int,
    round_keys: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """See ``draw``; returns what an ``EpochDraws`` holds, in its order."""
    num_rows, num_own = len(first), len(pairs.ids)
    num_batches = -(-num_pairs // batch_size)
    negatives, batch = np.empty((num_own, num_negatives), np.int64), np.zeros(num_own, np.int64)
    row, number = np.empty(num_own, np.int64), np.empty(num_own, np.int64)
    bits = max(2, (num_pairs - 1).bit_length())
    words = tuple(np.uint64(word) for word in (*key, epoch))

    def compute(rows: slice) -> None:
        lists = pairs.indptr, first, *known, candidates.start, len(candidates)
        _negatives(rows.start, rows.stop, *lists, *words, row, number, negatives)
        if num_batches > 1:
            some = slice(pairs.indptr[rows.start], pairs.indptr[rows.stop])
            _batches(number[some], num_pairs, bits, round_keys, batch_size, batch[some])

    num_parts = 4 * torch.get_num_threads() if num_own >= PARALLEL_DRAWS else 1
    parallel_for(compute, even_slices(num_rows, num_parts))
    starts, order = _by_batch(batch, negatives, num_batches)
    return starts, row[order], pairs.ids[order], negatives[order], number[order]


@compiled()
def _negatives(
    start, stop, indptr, first, known_indptr, known_ids, lowest, count, key_0, key_1, epoch, row, number, negatives
):
    """The negatives of the pairs of some rows; -1 for a row that is joined with every candidate."""
    for i in range(start, stop):
        known = known_ids[known_indptr[i] : known_indptr[i + 1]]
        free = np.uint64(count - len(known))
        for place in range(indptr[i], indptr[i + 1]):
            t = first[i] + place - indptr[i]
            row[place], number[place] = i, t
            for k in range(negatives.shape[1]):
                if free == 0:
                    negatives[place, k] = -1
                    continue
                word_0, word_1, _, _ = _philox(
                    np.uint64(t) & LOW, np.uint64(t) >> SHIFT, np.uint64(k), epoch, key_0, key_1
                )
                chosen = np.int64((word_0 | word_1 << SHIFT) % free)
                low, high = 0, len(known)  # how many known candidates lie below the chosen one
                while low < high:
                    middle = (low + high) // 2
                    if known[middle] - lowest - middle > chosen:
                        high = middle
                    else:
                        low = middle + 1
                negatives[place, k] = lowest + chosen + low


@compiled()
def _batches(number, num_pairs, bits, keys, batch_size, batch):
    """The batches of the pairs with these numbers."""
    low_bits = np.uint64(bits // 2)
    low_mask = (ONE << low_bits) - ONE
    high_mask = (ONE << np.uint64(bits - bits // 2)) - ONE
    for i in range(len(number)):
        value = np.uint64(number[i])
        while True:
            low, high = value & low_mask, value >> low_bits
            for turn in range(0, len(keys), 2):
                low ^= _mix(high + keys[turn]) & low_mask
                high ^= _mix(low + keys[turn + 1]) & high_mask
            value = high << low_bits | low
            if value < np.uint64(num_pairs):
                break
        batch[i] = np.int64(value) // batch_size


@numba.njit(inline="always")
def _mix(word):
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    word = (word ^ word >> S30) * MIX_0
    word = (word ^ word >> S27) * MIX_1
    return word ^ word >> S31


@compiled()
def _by_batch(batch, negatives, num_batches):
    """Where each batch starts, and the order of the draws by batch, without those that have no negatives."""
    starts = np.zeros(num_batches + 1, np.int64)
    for i in range(len(batch)):
        if negatives.shape[1] == 0 or negatives[i, 0] >= 0:
            starts[batch[i] + 1] += 1
    for b in range(num_batches):
        starts[b + 1] += starts[b]
    place, order = starts.copy(), np.empty(starts[-1], np.int64)
    for i in range(len(batch)):
        if negatives.shape[1] == 0 or negatives[i, 0] >= 0:
            order[place[batch[i]]] = i
            place[batch[i]] += 1
    return starts, order


@compiled()
def slots(starts, ids):
    """Number the distinct ids of each batch in the order of their first appearance.

    Args:
        starts: (num_batches + 1,), where the ids of each batch begin.
        ids: (num_ids,) int64.

    Returns:
        the number of each id in its batch (num_ids,), the distinct ids of all batches, and how many each batch has.
    """
    num_batches, largest, size = len(starts) - 1, 0, 1
    for b in range(num_batches):
        largest = max(largest, starts[b + 1] - starts[b])
    while size < 2 * largest:
        size *= 2
    table, mask = np.full(size, -1, np.int64), np.uint64(size - 1)  # by hash, a place in ``distinct``
    slot, distinct = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    sizes, total = np.zeros(num_batches, np.int64), 0
    for b in range(num_batches):
        begin = total  # what the table has of earlier batches counts as empty
        for i in range(starts[b], starts[b + 1]):
            at = _mix(np.uint64(ids[i])) & mask
            while table[at] >= begin and distinct[table[at]] != ids[i]:
                at = at + ONE & mask
            if table[at] < begin:
                table[at], distinct[total] = total, ids[i]
                total += 1
            slot[i] = table[at] - begin
        sizes[b] = total - begin
    return slot, distinct[:total], sizes
