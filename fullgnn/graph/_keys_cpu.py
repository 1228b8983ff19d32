"""Compiled loops over pairs of nodes, each of them one int64 key. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np

from fullgnn.graph._csr_cpu import over_rows
from fullgnn.kernels.support.process import PIECES, even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled

BUCKETS = 1 << 10
"""Into how many buckets keys are put before each bucket is sorted: one fits into a cache."""

MIN_KEYS = 1 << 20
"""So many keys are worth buckets."""


def sort_keys(keys: np.ndarray) -> np.ndarray:
    """The ascending ``keys``, which are int64 and at least 0; the argument may be sorted in place."""
    if len(keys) < MIN_KEYS:
        keys.sort()
        return keys
    shift = max(0, int(keys.max()).bit_length() - BUCKETS.bit_length() + 1)
    pieces = even_slices(len(keys), PIECES)
    counts = np.zeros((PIECES, BUCKETS), np.int64)
    parallel_for(lambda piece: _count(keys[pieces[piece]], shift, counts[piece]), range(PIECES))
    ends = np.cumsum(counts.sum(axis=0))
    places = np.cumsum(counts, axis=0) - counts + (ends - counts.sum(axis=0))
    ordered = np.empty_like(keys)
    parallel_for(lambda piece: _place(keys[pieces[piece]], shift, places[piece], ordered), range(PIECES))
    parallel_for(lambda bucket: ordered[slice(*bucket)].sort(), zip([0, *ends[:-1].tolist()], ends.tolist()))
    return ordered


def without_repeats(keys: np.ndarray) -> np.ndarray:
    """The distinct ones of ascending ``keys``."""
    is_new = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
    return keys[is_new]


def csr_of(keys: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """indptr (num_nodes + 1,) int64 and indices (num_keys,) int32 of the ascending ``keys`` of a square matrix."""
    indptr = np.searchsorted(keys, np.arange(num_nodes + 1) * num_nodes)
    return indptr, columns_of(keys, indptr)


def split_keys(keys: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The two nodes of each pair, int64."""
    first, second = np.empty_like(keys), np.empty_like(keys)
    parallel_for(lambda some: _split(keys[some], num_nodes, first[some], second[some]), even_slices(len(keys), PIECES))
    return first, second


def columns_of(keys: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """(num_keys,) int32, ``key - row * num_nodes`` of ascending keys, of which a row has those from its ``indptr``."""
    columns = np.empty(len(keys), np.int32)
    over_rows(_columns, len(indptr) - 1, keys, indptr, columns)
    return columns


def nodes_at(
    cumulative: np.ndarray, base: np.ndarray, width: np.ndarray, counts: np.ndarray, random: np.ndarray
) -> np.ndarray:
    """Draw nodes by expected degree: the last node i with cumulative[i] <= base[g] + random * width[g].

    Args:
        cumulative: (num_nodes + 1,) float64, from 0.
        base, width: (num_groups,) float64, where the range of each group begins, and its length.
        counts: (num_groups,) int64, draws of each group.
        random: (num_draws,) float64 in [0, 1), those of the first group first.

    Returns:
        (num_draws,) int64.
    """
    # A table of equal steps gives the node near a position, from where the node is found by a few comparisons.
    per_step = len(cumulative) / max(float(cumulative[-1]), np.finfo(np.float64).tiny)
    steps = np.searchsorted(cumulative, np.arange(len(cumulative) + 1) / per_step, side="right") - 1
    near = np.clip(steps, 0, len(cumulative) - 2).astype(np.int32)
    ends = np.cumsum(counts)
    nodes = np.empty(len(random), np.int64)
    over_rows(_nodes, len(random), cumulative, base, width, ends, random, near, per_step, nodes)
    return nodes


@compiled()
def _count(keys, shift, counts):
    for key in keys:
        counts[key >> shift] += 1


@compiled()
def _place(keys, shift, places, ordered):
    for key in keys:
        bucket = key >> shift
        ordered[places[bucket]] = key
        places[bucket] += 1


@compiled()
def _split(keys, num_nodes, first, second):
    for index in range(len(keys)):
        first[index] = keys[index] // num_nodes
        second[index] = keys[index] - first[index] * num_nodes


@compiled()
def _columns(keys, indptr, columns, begin, end):
    num_nodes = len(indptr) - 1
    for row in range(begin, end):
        for edge in range(indptr[row], indptr[row + 1]):
            columns[edge] = keys[edge] - row * num_nodes


@compiled()
def _nodes(cumulative, base, width, ends, random, near, per_step, nodes, begin, end):
    group, last = np.searchsorted(ends, begin, side="right"), len(cumulative) - 2
    for draw in range(begin, end):
        while draw >= ends[group]:
            group += 1
        position = base[group] + random[draw] * width[group]
        node = near[min(np.int64(position * per_step), len(near) - 1)]
        while node > 0 and cumulative[node] > position:
            node -= 1
        while node < last and cumulative[node + 1] <= position:
            node += 1
        nodes[draw] = node
