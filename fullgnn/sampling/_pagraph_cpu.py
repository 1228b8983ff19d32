"""The compiled loops of ``pagraph.py``. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np

from fullgnn.kernels.support.vectors import compiled


@compiled()
def assign(indptr, indices, train, num_hops, average, part_of, member, sizes):
    """Give each of the ``train`` nodes, in their order, to a part; see ``cross_partition_free``.

    Args:
        part_of: (num_nodes,) int32, -1 everywhere; the parts of the training nodes are written to it.
        member: (num_nodes, num_words) uint64 zeros; bit i of a row says that part i holds the node.
        sizes: (2, num_parts) int64 zeros: the training nodes of each part, and all of its nodes.
    """
    num_parts = sizes.shape[1]
    queue, seen = np.empty(len(part_of), np.int32), np.full(len(part_of), -1, np.int32)
    shared = np.empty(num_parts, np.int64)
    for number in range(len(train)):
        node = train[number]
        end = read_nodes(indptr, indices, node, num_hops, number, queue, seen)
        shared[:] = 0
        for place in range(end):
            if part_of[queue[place]] >= 0:
                shared[part_of[queue[place]]] += 1
        best, best_score = 0, -np.inf
        for part in range(num_parts):
            score = shared[part] * (average - sizes[0, part]) / max(1, sizes[1, part])
            if score > best_score or (score == best_score and sizes[0, part] < sizes[0, best]):
                best, best_score = part, score
        part_of[node] = best
        sizes[0, best] += 1
        word, bit = best // 64, np.uint64(1) << np.uint64(best % 64)
        for place in range(end):
            if not member[queue[place], word] & bit:
                member[queue[place], word] |= bit
                sizes[1, best] += 1


@numba.njit(nogil=True)
def read_nodes(indptr, indices, node, num_hops, stamp, queue, seen):
    """Write ``node`` and what it reads in at most ``num_hops`` hops to ``queue``; returns how many nodes these are.

    Args:
        stamp: a number that is nowhere in ``seen`` yet; ``seen`` has it for each of these nodes then.
    """
    queue[0], seen[node] = node, stamp
    begin, end = 0, 1
    for _ in range(num_hops):
        stop = end
        for place in range(begin, stop):
            for edge in range(indptr[queue[place]], indptr[queue[place] + 1]):
                source = indices[edge]
                if seen[source] != stamp:
                    seen[source] = stamp
                    queue[end] = source
                    end += 1
        begin = stop
    return end
