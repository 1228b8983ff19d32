"""The compiled loops of :mod:`fullgnn.kernels.edges.largest`. Importing this module imports numba.

Forward, the largest numbers of a slice of a target's columns, and the keys of the sources that sent them, stay in
registers while the edges pass, tile by tile: the first pass over the rows of a tile finds the largest numbers, the
second one finds the lowest key that sent them, in rows that lie in the L1 cache by then. A key is an int32 that orders
the sources of the stage as their original ids do; its bits are held as those of a float32. A stage with a nan or an
infinity, which training seldom meets, takes a plain loop that compares nans, too.

Backward, each column of a target has one winner. So the gradients of a stage are one addition for each number of the
targets, whatever the number of edges: a table finds the row of a winner among the rows of the stage. Where the ids are
dense, each number of their range has a slot of its own; otherwise it is a hash table. Threads share the columns, and
each of them adds the targets in order. In a graph with edge weights, a pass over the edges multiplies the gradients by
the weights of the winners' edges before.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import functools
from collections.abc import Callable

import numpy as np
import torch
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from torch import Tensor

from fullgnn.kernels.edges._reduce_cpu import update_state
from fullgnn.kernels.edges._rows_cpu import RowLoop, over_rows, over_rows_of_arrays
from fullgnn.kernels.edges._vectors_cpu import compiled, larger, multiply, spread
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import LINE_BYTES, lanes_of, memory_of, registers
from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.kernels.support.vectors import I32, broadcast, load, prefetch, store, zeros

LOOKAHEAD = 16  # edges
TILE_BYTES = 1 << 14  # bytes of rows of X in a tile: a third of an L1 cache of 48 KB
NO_KEY = np.iinfo(np.int32).max
NO_IDS = torch.empty(0, dtype=torch.int64)
DENSE_RANGE = 4  # ids are dense if their range is below so many times their number
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: Knuth, volume 3, section 6.4


def largest_rows(csr: LocalCSR, x: Tensor, source_id: Tensor, state: MaxState) -> None:
    """See :func:`fullgnn.kernels.edges.largest.largest_rows`; the rows of ``x`` are contiguous."""
    size, width = x.element_size(), x.shape[1]
    weighted = csr.values is not None
    edge_weight = csr.values.contiguous() if csr.values is not None else x.new_empty(0)
    if not bool(x.sum().isfinite()):  # a nan or an infinity, which may be multiplied by a weight that is rounded to 0
        update_state(csr, edge_weight, x, False, source_id, state)
        return
    keys, ids = _keys(source_id)
    lanes, num_vectors, columns = _slice_of(size, width)
    loop = largest_loop(8 * size, lanes, num_vectors, weighted)
    states = (state.value, state.winner)
    over_rows(loop, csr, edge_weight, memory_of(x), width, columns, states, keys.numpy(), ids.numpy())


def largest_rows_backward(
    csr: LocalCSR, transposed: Callable[[], Transposed], source_id: Tensor, winner: Tensor, grad: Tensor
) -> Tensor:
    """See :func:`fullgnn.kernels.edges.largest.largest_rows_backward`; the tensors are contiguous."""
    ids, num_sources, width = source_id.numpy(), csr.num_cols, grad.shape[1]
    out = grad.new_zeros(num_sources, width)
    if csr.values is not None:
        weighed = torch.zeros_like(grad)
        arrays = [tensor.contiguous().numpy() for tensor in (csr.values, source_id, winner, grad, weighed)]
        over_rows_of_arrays(_weigh_gradients, csr, *arrays)
        grad = weighed
    low, high = int(ids.min()), int(ids.max())
    dense = high - low < DENSE_RANGE * num_sources
    num_bits = (high - low if dense else 2 * num_sources).bit_length()
    slots = np.full(1 << num_bits, -1, np.int32)
    factor, shift = (np.uint64(1), np.uint64(0)) if dense else (HASH_FACTOR, np.uint64(64 - num_bits))
    _fill(ids, low, dense, factor, shift, slots)
    given = (ids, low, high, dense, factor, shift, slots, winner.numpy(), grad.numpy(), out.numpy())
    # Slices of whole cache lines, so that no two threads write to one line.
    per_line = LINE_BYTES // grad.element_size()
    num_slices = min(torch.get_num_threads(), -(-width // per_line))
    parallel_for(
        lambda lines: _add_gradients(lines.start * per_line, min(width, lines.stop * per_line), *given),
        even_slices(-(-width // per_line), num_slices),
    )
    return out


def _keys(source_id: Tensor) -> tuple[Tensor, Tensor]:
    """(m,) int32 keys in the order of the ids, and the (m,) id of each key; the latter is empty if keys are ids."""
    if int(source_id.max()) < NO_KEY:
        return source_id.int(), NO_IDS
    ids, order = source_id.sort()
    keys = torch.empty_like(order, dtype=torch.int32)
    keys[order] = torch.arange(len(order), dtype=torch.int32)
    return keys, ids


def _slice_of(size: int, width: int) -> tuple[int, int, int]:
    """The lanes of a vector, the vectors and the columns of a slice of ``width`` columns of ``size`` bytes each.

    Numbers and keys of a slice take half of the registers.
    """
    count, register_bytes = registers()
    lanes = lanes_of(width, LINE_BYTES // size)
    most = max(1, count * register_bytes // (4 * LINE_BYTES))
    num_vectors = min(most, -(-width // lanes))
    return lanes, num_vectors, min(width, lanes * num_vectors)


@intrinsic
def lowest_keys(_, numbers, tops, key, keys):
    """The lower of ``key``, an int32, and ``keys`` where ``numbers`` equal ``tops``; ``keys`` elsewhere."""

    def codegen(context, builder, signature, args):
        numbers, tops_value, key, best = args
        spread = broadcast(builder, tops.lanes, key)
        for k in range(tops.num_vectors):
            held = builder.bitcast(builder.extract_value(best, k), spread.type)
            lower = builder.select(builder.icmp_signed("<", spread, held), spread, held)
            equal = builder.fcmp_ordered("==", builder.extract_value(numbers, k), builder.extract_value(tops_value, k))
            chosen = builder.bitcast(builder.select(equal, lower, held), keys.vector)
            best = builder.insert_value(best, chosen, k)
        return best

    return keys(numbers, tops, types.int32, keys), codegen


@intrinsic
def forget_keys(_, before, tops, keys):
    """``keys``, but ``NO_KEY`` where ``tops`` exceed ``before``."""

    def codegen(context, builder, signature, args):
        before, tops_value, best = args
        none = broadcast(builder, tops.lanes, I32(NO_KEY))
        for k in range(tops.num_vectors):
            held = builder.bitcast(builder.extract_value(best, k), none.type)
            risen = builder.fcmp_ordered(">", builder.extract_value(tops_value, k), builder.extract_value(before, k))
            best = builder.insert_value(best, builder.bitcast(builder.select(risen, none, held), keys.vector), k)
        return best

    return keys(before, tops, keys), codegen


@intrinsic
def join_state(_, value, winner, last, senders, last_sender, numbers):
    """Update a slice of the state of a target by ``numbers`` that are not nan.

    Args:
        value, winner, senders: addresses of the slice of the state, and of the int64 ids that sent the numbers.
        last, last_sender: bytes from there to the last vector of numbers, and of ids.
    """

    def codegen(context, builder, signature, args):
        value, winner, last, senders, last_sender, row = args
        wide = ir.VectorType(ir.IntType(64), numbers.lanes)
        for k in range(numbers.num_vectors):
            at_end = k == numbers.num_vectors - 1
            of_value = last if at_end else last.type(k * numbers.vector_bytes)
            of_id = last_sender if at_end else last.type(k * numbers.lanes * 8)
            places = [builder.inttoptr(builder.add(start, of_id), wide.as_pointer()) for start in (senders, winner)]
            sender, held = (builder.load(place, align=8) for place in places)
            place = builder.inttoptr(builder.add(value, of_value), numbers.vector.as_pointer())
            number, old = builder.extract_value(row, k), builder.load(place, align=numbers.bits // 8)
            tie = builder.and_(builder.fcmp_ordered("==", number, old), builder.icmp_signed("<", sender, held))
            wins = builder.or_(builder.fcmp_ordered(">", number, old), tie)
            builder.store(builder.select(wins, number, old), place, align=numbers.bits // 8)
            builder.store(builder.select(wins, sender, held), places[1], align=8)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5, numbers), codegen


@functools.cache
def largest_loop(bits: int, lanes: int, num_vectors: int, weighted: bool) -> RowLoop:
    """The loop that updates the largest rows of some targets, in slices of ``num_vectors`` vectors of ``lanes``."""
    most, size = lanes * num_vectors, bits // 8
    tile = TILE_BYTES // (most * size)

    @compiled(bits, lanes, num_vectors, weighted)
    def largest(indptr, indices, first_row, stop_row, scratch, edge_weight, x_at, width, columns, state, keys, ids):
        """Update the state of some targets.

        Args:
            edge_weight: address of the weights of the edges, if they are ``weighted``.
            x_at: the ``memory_of`` of X, of which all numbers are finite.
            state: addresses of the tensors of the ``MaxState``.
            width, columns: of a row, and of a slice of it. The last slice ends where the row does.
            keys: (m,) int32 keys of the sources.
            ids: (m,) id of each key; (0,): keys are ids.
        """
        (x, x_stride), (value, winner) = x_at, state
        no_numbers, no_keys = zeros(bits, lanes, num_vectors), zeros(32, lanes, num_vectors)
        numbers, winners, senders = (
            scratch[:most],
            scratch[most : 2 * most].view(np.int32),
            scratch[2 * most :].view(np.int64),
        )
        numbers_at = scratch.ctypes.data
        winners_at = numbers_at + most * size
        senders_at = winners_at + most * size
        last, last_key = (columns - lanes) * size, (columns - lanes) * 4
        numbers[:], winners[:] = -np.inf, NO_KEY
        lowest, none = load(numbers_at, last, no_numbers), load(winners_at, last_key, no_keys)
        num_edges = len(indices)
        for row in range(first_row, stop_row):
            start, end = np.intp(indptr[row]), np.intp(indptr[row + 1])
            if start == end:
                continue
            for part in range(0, width, columns):
                first = min(part, width - columns)
                base = x + first * size
                top, best = lowest, none
                for tile_start in range(start, end, tile):
                    before, stop = top, min(tile_start + tile, end)
                    for edge in range(tile_start, stop):
                        ahead = np.uint64(min(edge + LOOKAHEAD, num_edges - 1))
                        prefetch(base + np.intp(indices[ahead]) * x_stride, no_numbers)
                        neighbour = load(base + np.intp(indices[np.uint64(edge)]) * x_stride, last, no_numbers)
                        if weighted:
                            neighbour = multiply(neighbour, spread(edge_weight + edge * size, no_numbers, 1, most))
                        top = larger(top, neighbour)
                    best = forget_keys(before, top, best)
                    for edge in range(tile_start, stop):
                        source = np.intp(indices[np.uint64(edge)])
                        neighbour = load(base + source * x_stride, last, no_numbers)
                        if weighted:
                            neighbour = multiply(neighbour, spread(edge_weight + edge * size, no_numbers, 1, most))
                        best = lowest_keys(neighbour, top, keys[np.uint64(source)], best)
                store(winners_at, last_key, best)
                if len(ids) > 0:
                    for k in range(columns):
                        senders[k] = ids[winners[k]]
                else:
                    for k in range(columns):
                        senders[k] = winners[k]
                place = row * width + first
                join_state(value + place * size, winner + place * 8, last, senders_at, (columns - lanes) * 8, top)

    return RowLoop(largest, bits, 2 * most + 8 * most // size)


@compiled()
def _fill(ids, low, dense, factor, shift, slots):
    """Put the position of each id into its own slot if the ids are ``dense``, otherwise into the first free one from
    there on. The ids differ, but those of a dry run, whose table has a slot for each of them."""
    mask = np.uint64(len(slots) - 1)
    for place in range(len(ids)):
        slot = (np.uint64(ids[place] - low) * factor) >> shift
        while not dense and slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = place


@compiled()
def _weigh_gradients(indptr, indices, first_row, stop_row, edge_weight, source_id, winner, grad, out):
    """Write the gradients of some targets, times the weights of the edges by which sources of this stage have won."""
    for row in range(first_row, stop_row):
        best_id, of_row, weighed = winner[row], grad[row], out[row]
        for edge in range(indptr[row], indptr[row + 1]):
            sender, weight = source_id[indices[edge]], edge_weight[edge]
            for column in range(grad.shape[1]):
                of_winner = of_row[column] * weight
                weighed[column] = of_winner if best_id[column] == sender else weighed[column]


@compiled()
def _add_gradients(first, stop, ids, low, high, dense, factor, shift, slots, winner, grad, out):
    """Add some columns of the gradients of all targets to those of the winners in this stage.

    Args:
        low, high: the lowest and the highest of the ids.
        dense: whether each number from ``low`` to ``high`` has a slot of its own.
    """
    mask = np.uint64(len(slots) - 1)
    for row in range(len(winner)):
        for column in range(first, stop):
            number = winner[row, column]
            if number < low or number > high:
                continue
            slot = np.uint64(number - low)
            if not dense:
                slot = (slot * factor) >> shift
                while slots[slot] >= 0 and ids[slots[slot]] != number:
                    slot = (slot + np.uint64(1)) & mask
            place = slots[slot]
            if place >= 0:
                out[place, column] += grad[row, column]
