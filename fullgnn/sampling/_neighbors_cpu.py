"""The compiled sampler of :mod:`fullgnn.sampling.neighbors`. Importing this module imports numba.

One call samples all hops of a batch and renumbers their nodes. Threads that call it at the same time share the work:

    for each hop, with the targets of the hop cut into chunks
        count     how many edges each target gets
        draw      the edges, as GLOBAL ids of their sources; a bit is set for each source in a bitmap of this thread
        merge     the bitmaps of the threads are joined; how many sources each stretch of the bitmap has
        number    the sources in ascending order, and for each word of the bitmap, how many sources lie before it
        rename    the LOCAL id of a source is that number plus the ones before its bit in its word

A phase begins when the last chunk of the phase before is done. A thread takes the next chunk that nobody has taken, so
a thread that comes late, or never, delays nobody. Chunks write to places that the counts fix, and joining bitmaps does
not depend on the order: the result is the same for any number of threads.

A bitmap has a second level: bit w of it tells whether word w of the first level has a one. So a batch that touches few
nodes of a large graph reads, and clears, few words.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import math

import numba
import numpy as np

from fullgnn.kernels.dropout import _philox_cpu
from fullgnn.kernels.dropout._philox_cpu import LOW, SHIFT, _philox
from fullgnn.kernels.support import _atomics_cpu
from fullgnn.kernels.support._atomics_cpu import (
    count_ones,
    lowest_one,
    prefetch_line,
    read_shared,
    take_ticket,
    yield_core,
)
from fullgnn.kernels.support.vectors import compiled_with

compiled = compiled_with(_philox_cpu, _atomics_cpu)
"""``compiled`` for loops that call functions of these modules."""

UNIFORM, UNIFORM_REPLACE, WEIGHTED_REPLACE, WEIGHTED = range(4)
"""How neighbours are drawn: see ``neighbors.Draw``."""

PHASES = 5  # of a hop
TILE = 32  # targets whose edges are drawn together: one loop draws and prefetches, the next one reads
SPINS = 64  # polls before a waiting thread lets others run
RETRY = np.uint64(1 << 24)  # step of the second counter word for a word that is drawn again

ZERO, ONE = np.uint64(0), np.uint64(1)
S6, S11, S12, M63 = np.uint64(6), np.uint64(11), np.uint64(12), np.uint64(63)


@compiled()
def sample(thread, num_chunks, graph, fanouts, first_hop, how, stream, scratch, counters, result):
    """Take part in sampling one batch, as thread ``thread``; the batch is complete when any thread returns.

    Args:
        num_chunks: number of chunks of each phase.
        graph: indptr, (n + 1,) int64, and indices, (nnz,) int32;
            cumulative, (nnz,) float64 running sums of the weights of each row, for WEIGHTED_REPLACE; else (0,);
            weights, (nnz,) float64, for the weighted draws; else (0,).
        fanouts: (num_hops,) int64, -1 for all neighbours.
        first_hop: the number of the first one of these hops in the batch.
        stream: the two words of the key, and the epoch; 32 bits each, in uint64.
        scratch: bits and summary, the two levels of the bitmap of each thread, zeros before and after;
            joined and rank, (words,) uint64 and (words,) int32, of any content.
        counters: tickets, (2, num_hops * PHASES + 1) int64 zeros: of each phase, the chunks taken and those done;
            chunk_edges and chunk_nodes, (num_hops, num_chunks) int64. Each hop has a row of its own: a thread that
            comes late reads the counts of a hop while others write those of the next one.
        result: sizes, (num_hops, 6) int64. In row h, before the call: the first place of hop h in ``starts``, ``local``
            and ``nodes``, where the sources of hop h stand behind its targets; after it, the numbers of its targets,
            edges and sources;
            nodes, int32 GLOBAL ids: the batch's targets, ascending and distinct, then the sources of each hop;
            target_index, int32, for each target its LOCAL id among the sources of its hop; the place of hop h is that
            of its targets in ``nodes``;
            starts and local, int32, indptr and LOCAL sources of each hop's edges;
            places, int64 places of the edges in ``indices``, as ``local``; (0,): not wanted;
            factors, float64 factors of the edges, as ``local``, for the weighted draws; else (0,).
    """
    indptr, indices, cumulative, weights = graph
    bits, summary, joined, rank = scratch
    tickets, all_chunk_edges, all_chunk_nodes = counters
    sizes, nodes, target_index, starts, local, places, factors = result
    num_threads, num_summaries = summary.shape
    longest = 0
    for fanout in fanouts:
        longest = max(longest, fanout)
    groups_most = (longest + 1) // 2  # Philox calls of a row, two words a draw
    word = np.empty(TILE * max(1, groups_most) * 4, np.uint32)
    counter_node = np.empty(TILE * max(1, groups_most), np.uint64)
    counter_group = np.empty(TILE * max(1, groups_most), np.uint64)
    drawn = np.empty(TILE * max(1, longest), np.int64)
    found_key, found_place = np.empty(longest + 1, np.float64), np.empty(longest + 1, np.int64)
    row_factor = np.empty(TILE * max(1, longest), np.float64)
    marks = np.zeros(64, np.uint64)
    own_bits, own_summary = bits[thread], summary[thread]
    address = indices.ctypes.data
    num_targets = sizes[0, 3]
    first_target = 0
    for h in range(len(fanouts)):
        fanout, hop, phase = fanouts[h], np.uint64(first_hop + h), h * PHASES
        first_start, first_edge, first_source = sizes[h, 0], sizes[h, 1], sizes[h, 2]
        targets = nodes[first_target : first_target + num_targets]
        chunk_edges, chunk_nodes = all_chunk_edges[h], all_chunk_nodes[h]

        for chunk in _chunks(tickets, phase, num_chunks):  # count
            low, high = _part(num_targets, chunk, num_chunks)
            total = 0
            for i in range(low, high):
                total += _row_count(indptr, cumulative, weights, targets[i], fanout, how)
                if h == 0:
                    _mark(own_bits, own_summary, targets[i])
            chunk_edges[chunk] = total

        for chunk in _chunks(tickets, phase + 1, num_chunks):  # draw
            low, high = _part(num_targets, chunk, num_chunks)
            edge = first_edge + chunk_edges[:chunk].sum()
            if chunk == 0:
                starts[first_start] = 0
            for begin in range(low, high, TILE):
                end = min(begin + TILE, high)
                num_drawn = 0
                if fanout >= 0 and how <= UNIFORM_REPLACE:
                    marks = _draw_uniform(
                        indptr, targets, begin, end, fanout, how, hop, stream, address, counter_node, counter_group,
                        word, marks, drawn,
                    )  # fmt: skip
                elif fanout >= 0:
                    for i in range(begin, end):
                        num_drawn += _draw_weighted(
                            indptr, cumulative, weights, targets[i], fanout, how, hop, stream, found_key, found_place,
                            drawn[num_drawn:], row_factor[num_drawn:],
                        )  # fmt: skip
                else:
                    for i in range(begin, end):
                        prefetch_line(address + 4 * indptr[targets[i]])
                num_drawn = 0
                for i in range(begin, end):
                    v = targets[i]
                    first, degree = indptr[v], indptr[v + 1] - indptr[v]
                    count = _row_count(indptr, cumulative, weights, v, fanout, how)
                    whole = fanout < 0 or (degree <= fanout and (how == UNIFORM or how == WEIGHTED))  # noqa: SIM109
                    for k in range(count):
                        place = first + k if whole else drawn[num_drawn + k]
                        source = indices[place]
                        local[edge + k] = source
                        _mark(own_bits, own_summary, source)
                        if len(places) > 0:
                            places[edge + k] = place
                    if len(factors) > 0:
                        for k in range(count):
                            factors[edge + k] = 1.0 if whole else row_factor[num_drawn + k]
                    edge += count
                    if not whole:
                        num_drawn += count
                    starts[first_start + i + 1] = edge - first_edge

        for chunk in _chunks(tickets, phase + 2, num_chunks):  # merge
            low, high = _part(num_summaries, chunk, num_chunks)
            total = ZERO
            for s in range(low, high):
                flags = _join(summary, s)
                while flags:
                    w = np.uint64(s) << S6 | lowest_one(flags)
                    flags &= flags - ONE
                    joined[w] = _join(bits, w)
                    total += count_ones(joined[w])
            chunk_nodes[chunk] = np.int64(total)

        num_edges, num_sources = chunk_edges[:num_chunks].sum(), chunk_nodes[:num_chunks].sum()
        for chunk in _chunks(tickets, phase + 3, num_chunks):  # number
            if chunk == 0:
                sizes[h, 3], sizes[h, 4], sizes[h, 5] = num_targets, num_edges, num_sources
            low, high = _part(num_summaries, chunk, num_chunks)
            number = chunk_nodes[:chunk].sum()
            for s in range(low, high):
                flags = _join(summary, s)
                while flags:
                    w = np.uint64(s) << S6 | lowest_one(flags)
                    flags &= flags - ONE
                    rank[w] = number
                    ones = joined[w]
                    while ones:
                        nodes[first_source + number] = w << S6 | lowest_one(ones)
                        number += 1
                        ones &= ones - ONE

        for chunk in _chunks(tickets, phase + 4, num_chunks):  # rename
            low, high = _part(num_edges, chunk, num_chunks)
            for e in range(first_edge + low, first_edge + high):
                local[e] = _number_of(local[e], joined, rank)
            low, high = _part(num_targets, chunk, num_chunks)
            for i in range(low, high):
                target_index[first_target + i] = _number_of(targets[i], joined, rank)
        first_target, num_targets = first_source, num_sources

    for chunk in _chunks(tickets, len(fanouts) * PHASES, num_chunks):  # clear
        low, high = _part(num_summaries, chunk, num_chunks)
        for s in range(low, high):
            for t in range(num_threads):
                flags = summary[t, s]
                summary[t, s] = ZERO
                while flags:
                    bits[t, np.uint64(s) << S6 | lowest_one(flags)] = ZERO
                    flags &= flags - ONE


@compiled()
def count_reads(targets, starts, sources, bits, targets_of_hop, counts):
    """Add 1 to the (num_nodes,) ``counts`` of every node whose features a batch reads.

    Args:
        targets: GLOBAL ids of the batch.
        starts: (num_hops, num_nodes + 1) int64: at hop h node i reads ``sources[starts[h, i] : starts[h, i + 1]]``.
        bits: (words,) uint64, a bit for each node; zeros before and after.
        targets_of_hop: (words,) uint64 of any content.
    """
    for target in targets:
        bits[np.uint64(target) >> S6] |= ONE << (np.uint64(target) & M63)
    for h in range(len(starts)):
        targets_of_hop[:] = bits
        for w in range(len(bits)):
            ones = targets_of_hop[w]
            while ones:
                node = np.uint64(w) << S6 | lowest_one(ones)
                ones &= ones - ONE
                for place in range(starts[h, node], starts[h, node + ONE]):
                    u = np.uint64(sources[place])
                    bits[u >> S6] |= ONE << (u & M63)
    for w in range(len(bits)):
        ones = bits[w]
        bits[w] = ZERO
        while ones:
            counts[np.uint64(w) << S6 | lowest_one(ones)] += 1
            ones &= ones - ONE


@numba.njit
def _chunks(tickets, phase, num_chunks):
    """The chunks of a ``phase`` that this thread takes. When the loop over them ends, all chunks are done."""
    taken, done = tickets[0, phase:].ctypes.data, tickets[1, phase:].ctypes.data
    while True:
        chunk = take_ticket(taken)
        if chunk >= num_chunks:
            break
        yield chunk
        take_ticket(done)
    _wait(done, num_chunks)


@numba.njit(inline="always")
def _part(size, chunk, num_chunks):
    """Where ``chunk`` begins and ends among so many items."""
    return size * chunk // num_chunks, size * (chunk + 1) // num_chunks


@numba.njit(inline="always")
def _mark(bits, summary, node):
    """Set the bit of ``node`` in both levels of a bitmap."""
    u = np.uint64(node)
    bits[u >> S6] |= ONE << (u & M63)
    summary[u >> S12] |= ONE << ((u >> S6) & M63)


@numba.njit(inline="always")
def _wait(address, value):
    """Wait until the counter at ``address`` is ``value``. Another thread is working on what this one waits for."""
    polls = 0
    while read_shared(address) < value:
        polls += 1
        if polls > SPINS:
            yield_core()


@numba.njit(inline="always")
def _join(of_threads, w):
    """The bits that any thread has set in word ``w``."""
    word = of_threads[0, w]
    for t in range(1, len(of_threads)):
        word |= of_threads[t, w]
    return word


@numba.njit(inline="always")
def _number_of(node, joined, rank):
    """The number of ``node`` among all nodes whose bit is set."""
    u = np.uint64(node)
    before = joined[u >> S6] & ((ONE << (u & M63)) - ONE)
    return np.int32(np.int64(rank[u >> S6]) + np.int64(count_ones(before)))


@numba.njit(inline="always")
def _row_count(indptr, cumulative, weights, v, fanout, how):
    """How many edges target ``v`` gets."""
    first, end = indptr[v], indptr[v + 1]
    degree = end - first
    if fanout < 0:
        return degree
    if how == UNIFORM:
        return min(degree, fanout)
    if how == UNIFORM_REPLACE:
        return fanout if degree > 0 else 0
    if how == WEIGHTED_REPLACE:
        return fanout if degree > 0 and cumulative[end - 1] > 0 else 0
    if degree <= fanout:
        return degree
    count = 0
    for place in range(first, end):
        count += weights[place] > 0
        if count == fanout:
            break
    return count


@numba.njit(inline="always")
def _below(word, bound, node, draw, hop, stream):
    """A number below ``bound`` from the 32-bit ``word`` of a ``draw``, each with the same probability.

    Source: Lemire, "Fast random integer generation in an interval", 2019: the word is refused, and another one drawn,
    where the product would favour a number.
    """
    product = np.uint64(word) * bound
    if product & LOW < bound:
        least = ((ONE << SHIFT) - bound) % bound
        key_0, key_1, epoch = stream
        turn = ZERO
        while product & LOW < least:
            turn += ONE
            words = _philox(node, np.uint64(draw >> 2) + turn * RETRY, hop, epoch, key_0, key_1)
            product = words[draw & 3] * bound
    return product >> SHIFT


@numba.njit
def _draw_uniform(indptr, targets, begin, end, fanout, how, hop, stream, address, node, group, word, marks, drawn):
    """Draw the places of the edges of targets ``begin`` to ``end`` that do not get all their edges.

    Without replacement, draw number d of a row of n places takes a place below n - k + d + 1, or place n - k + d where
    that one is taken already (Floyd; Bentley, "Programming Pearls", CACM 30(9), 1987). Each set of k places has the
    same probability.

    Returns:
        ``marks``, zeros, which is longer than before where a row needs more of them.
    """
    key_0, key_1, epoch = stream
    num_groups, num_calls = (fanout + 3) // 4, 0
    for i in range(begin, end):
        v = targets[i]
        degree = indptr[v + 1] - indptr[v]
        if degree > fanout or (how == UNIFORM_REPLACE and degree > 0):
            for g in range(num_groups):
                node[num_calls], group[num_calls] = v, g
                num_calls += 1
    for call in range(num_calls):
        word_0, word_1, word_2, word_3 = _philox(node[call], group[call], hop, epoch, key_0, key_1)
        word[4 * call] = word_0
        word[4 * call + 1] = word_1
        word[4 * call + 2] = word_2
        word[4 * call + 3] = word_3
    row, out = 0, 0
    for i in range(begin, end):
        v = targets[i]
        first, degree = indptr[v], indptr[v + 1] - indptr[v]
        if how == UNIFORM and degree <= fanout:
            prefetch_line(address + 4 * first)
            continue
        if degree == 0:
            continue
        if how == UNIFORM and degree > 64 * len(marks):
            marks = np.zeros(2 * (degree // 64 + 1), np.uint64)
        if how == UNIFORM and degree <= 64:
            taken = ZERO  # the marks of a short row, in a register
            for d in range(fanout):
                last = np.uint64(degree - fanout + d)
                t = _below(word[row + d], last + ONE, np.uint64(v), d, hop, stream)
                if taken >> t & ONE:
                    t = last
                taken |= ONE << t
                drawn[out + d] = first + np.int64(t)
                prefetch_line(address + 4 * drawn[out + d])
        else:
            for d in range(fanout):
                last = np.uint64(degree - 1 if how == UNIFORM_REPLACE else degree - fanout + d)
                t = _below(word[row + d], last + ONE, np.uint64(v), d, hop, stream)
                if how == UNIFORM:
                    if marks[t >> S6] >> (t & M63) & ONE:
                        t = last
                    marks[t >> S6] |= ONE << (t & M63)
                drawn[out + d] = first + np.int64(t)
                prefetch_line(address + 4 * drawn[out + d])
            if how == UNIFORM:
                for d in range(out, out + fanout):
                    marks[np.uint64(drawn[d] - first) >> S6] = ZERO
        out += fanout
        row += 4 * num_groups
    return marks


@numba.njit(inline="always")
def _unit(high, low):
    """A float64 in (0, 1) from two 32-bit words."""
    return (np.float64((high << np.uint64(21)) ^ (low >> S11)) + 0.5) * 2.0**-53


@numba.njit
def _draw_weighted(indptr, cumulative, weights, v, fanout, how, hop, stream, keys, best, drawn, factor):
    """Draw the places of the edges of target ``v``, unless it gets all of them, and the factor of each.

    Returns:
        how many were drawn.
    """
    key_0, key_1, epoch = stream
    first, end = indptr[v], indptr[v + 1]
    if how == WEIGHTED_REPLACE:
        if end == first or not cumulative[end - 1] > 0:
            return 0
        total = cumulative[end - 1]
        for d in range(fanout):
            words = _philox(np.uint64(v), np.uint64(d >> 1), hop, epoch, key_0, key_1)
            unit = _unit(words[2], words[3]) if d & 1 else _unit(words[0], words[1])
            wanted = unit * total
            low, high = first, end - 1  # the first place whose running sum is above ``wanted``
            while low < high:
                middle = (low + high) // 2
                if cumulative[middle] > wanted:
                    high = middle
                else:
                    low = middle + 1
            while weights[low] <= 0:  # only where rounding has carried ``wanted`` to the end of the row
                low -= 1
            drawn[d] = low
            factor[d] = total / (weights[low] * fanout)
        return fanout
    if end - first <= fanout:
        return 0
    # An edge of weight w has the key Exp(1) / w; the fanout smallest keys win. Heap with the largest key on top.
    held = 0
    for place in range(first, end):
        if not weights[place] > 0:
            continue
        p = place - first
        words = _philox(np.uint64(v), np.uint64(p >> 1), hop, epoch, key_0, key_1)
        unit = _unit(words[2], words[3]) if p & 1 else _unit(words[0], words[1])
        key = -math.log(unit) / weights[place]
        if held <= fanout:
            at = held
            held += 1
            while at > 0 and keys[(at - 1) // 2] < key:
                keys[at], best[at] = keys[(at - 1) // 2], best[(at - 1) // 2]
                at = (at - 1) // 2
            keys[at], best[at] = key, place
        elif key < keys[0]:
            at = 0
            while True:
                child = 2 * at + 1
                if child >= held:
                    break
                if child + 1 < held and keys[child + 1] > keys[child]:
                    child += 1
                if keys[child] <= key:
                    break
                keys[at], best[at] = keys[child], best[child]
                at = child
            keys[at], best[at] = key, place
    out = 0
    if held <= fanout:
        for k in range(held):
            drawn[k], factor[k] = best[k], 1.0
        out = held
    else:  # the key on top is the smallest that does not win
        for k in range(1, held):
            drawn[out] = best[k]
            factor[out] = -1 / math.expm1(-weights[best[k]] * keys[0])
            out += 1
    for k in range(1, out):  # in the order of their places
        place, number = drawn[k], factor[k]
        at = k
        while at > 0 and drawn[at - 1] > place:
            drawn[at], factor[at] = drawn[at - 1], factor[at - 1]
            at -= 1
        drawn[at], factor[at] = place, number
    return out
