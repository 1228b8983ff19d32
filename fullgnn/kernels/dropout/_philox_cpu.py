"""The compiled CPU path of :mod:`fullgnn.kernels.dropout.philox`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from collections.abc import Sequence

import numba
import numpy as np
import torch

from fullgnn.kernels.dropout.philox import Mask
from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled

MULTIPLIER_0, MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_0, WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW, SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
PARALLEL_ELEMENTS = 1 << 16  # with fewer elements, starting work on a thread costs more than it saves
CHUNKS_PER_THREAD = 4  # so that a core that is busy elsewhere delays only a quarter of a thread's rows
TILE = 512  # Philox calls per tile: 16 KB of counters and words, half of a 32 KB L1 cache


def dropout_cpu(x: np.ndarray, node_id: np.ndarray, out: np.ndarray, mask: Mask) -> None:
    """Write to ``out``: ``x``, scaled, where ``mask`` keeps the element, else 0.

    Args:
        x, out: (num_local_nodes, F) float32 or float64, C-contiguous; they may be the same array.
        node_id: (num_local_nodes,) int64, those of ``mask``.
    """
    constants, chunks = _constants_and_chunks(x, mask)
    parallel_for(lambda rows: _dropout(x[rows], node_id[rows], out[rows], *constants), chunks)


def drop_entries_cpu(
    values: np.ndarray, row: np.ndarray, column: np.ndarray, node_id: np.ndarray, out: np.ndarray, mask: Mask
) -> None:
    """Write to ``out`` what ``dropout_cpu`` makes of (nnz,) ``values`` at these rows and columns.

    Args:
        values, out: (nnz,) float32 or float64.
        row, column: (nnz,) int32.
        node_id: (num_rows,) int64, those of ``mask``.
    """
    constants, chunks = _constants_and_chunks(values, mask)
    parallel_for(
        lambda some: _drop_entries(values[some], row[some], column[some], node_id, out[some], *constants), chunks
    )


def _constants_and_chunks(x: np.ndarray, mask: Mask) -> tuple[tuple[np.generic, ...], Sequence[slice]]:
    """The scalars that a compiled loop over ``x`` takes, in its types, and the slices of ``x`` for parallel calls."""
    number = x.dtype.type
    words = (np.uint64(word) for word in (*mask.key, int(mask.epoch) & int(LOW), mask.layer & int(LOW)))
    constants = (np.uint32(mask.threshold), number(mask.scale), number(0), *words)
    num_chunks = CHUNKS_PER_THREAD * torch.get_num_threads() if x.size >= PARALLEL_ELEMENTS else 1
    return constants, even_slices(len(x), num_chunks)


@numba.njit(inline="always")
def _philox(counter_0, counter_1, counter_2, counter_3, key_0, key_1):
    """The ten rounds of Philox, on 32-bit words in 64-bit lanes: a vectorised product is one widening multiply."""
    for _ in range(10):
        product_0, product_1 = counter_0 * MULTIPLIER_0, counter_2 * MULTIPLIER_1
        counter_0, counter_1, counter_2, counter_3 = (
            (product_1 >> SHIFT) ^ counter_1 ^ key_0,
            product_1 & LOW,
            (product_0 >> SHIFT) ^ counter_3 ^ key_1,
            product_0 & LOW,
        )
        key_0, key_1 = (key_0 + WEYL_0) & LOW, (key_1 + WEYL_1) & LOW
    return counter_0, counter_1, counter_2, counter_3


@compiled()
def _drop_entries(values, row, column, node_id, out, threshold, scale, zero, key_0, key_1, epoch, layer):
    """Process the entries in tiles. The counters of a tile are written first, so that its rounds are vectorised."""
    node, group = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    for first in range(0, len(values), TILE):
        num = min(TILE, len(values) - first)
        for entry in range(num):
            node[entry] = np.uint64(node_id[row[first + entry]]) & LOW
            group[entry] = np.uint64(column[first + entry] >> 2)
        for entry in range(num):
            word_0, word_1, word_2, word_3 = _philox(node[entry], group[entry], layer, epoch, key_0, key_1)
            place = column[first + entry] & 3
            low = word_0 if place == 0 else word_1
            high = word_2 if place == 2 else word_3
            word = low if place < 2 else high
            scaled = values[first + entry] * scale
            out[first + entry] = scaled if np.uint32(word) >= threshold else zero


@compiled()
def _dropout(x, node_id, out, threshold, scale, zero, key_0, key_1, epoch, layer):
    """Process ``x`` in tiles of a few rows.

    For each tile: write the counters, compute all random words in one vectorised loop, then write the rows of ``out``.
    A tile spans several rows, so that the loop is long, and is vectorised, for narrow matrices as well.
    """
    num_rows, num_columns = x.shape
    num_groups = (num_columns + 3) // 4  # Philox calls per row
    tile_rows = max(1, TILE // max(1, num_groups))
    num_tiles = (num_rows + tile_rows - 1) // tile_rows
    for tile in range(num_tiles):
        node = np.empty(tile_rows * num_groups, np.uint64)
        group = np.empty(tile_rows * num_groups, np.uint64)
        word = np.empty(tile_rows * num_groups * 4, np.uint32)
        first, stop = tile * tile_rows, min((tile + 1) * tile_rows, num_rows)
        num_calls = 0
        for row in range(first, stop):
            for g in range(num_groups):
                node[num_calls + g] = np.uint64(node_id[row]) & LOW
                group[num_calls + g] = g
            num_calls += num_groups
        for call in range(num_calls):
            word_0, word_1, word_2, word_3 = _philox(node[call], group[call], layer, epoch, key_0, key_1)
            word[4 * call] = word_0
            word[4 * call + 1] = word_1
            word[4 * call + 2] = word_2
            word[4 * call + 3] = word_3
        for row in range(first, stop):
            # With row views and an unconditional product, LLVM turns this loop into masked vector code.
            x_row, out_row, word_row = x[row], out[row], word[(row - first) * num_groups * 4 :]
            for column in range(num_columns):
                scaled = x_row[column] * scale
                out_row[column] = scaled if word_row[column] >= threshold else zero
