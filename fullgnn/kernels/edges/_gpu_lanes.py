"""Rows as the programs of the kernels for edges read them on a GPU, for ``_attention_gpu.py`` and its neighbours.
Importing this module imports Triton.

A program processes the edges of a few items, each a row or a part of a row, for a few heads:

    lanes (ROWS x EDGES)    each takes every EDGES-th edge of one of ROWS items, with sums of its own
    vectors                 the columns of a row, in vectors of 16 bytes; every vector belongs to one head
    at the end              the lanes of an item are joined, always in the same order

A number of an edge and head, such as a logit, is held for each vector of the head. So it lies in the thread that holds
the vector: no layout has to be converted, which would make the threads wait for each other in every iteration.

The D columns of a head begin at any column, K heads side by side. A program reads the vectors that hold them, from the
one with the first column on, and so reads up to UNIT - 1 columns of the neighbouring heads, or the padding behind the
row, on each side. It replaces them by 0 where they would count. All offsets have 64 bits.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from collections.abc import Callable, Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.dropout._philox_gpu import signed
from fullgnn.kernels.edges.mask import EDGES as KEY_OF_EDGES
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.row_bins import EdgeItems, RowBins
from fullgnn.kernels.spmm.reading import CHAIN, VECTOR_BYTES
from fullgnn.kernels.support.aligned import zero_padded

MIN_LANES, MAX_LANES = 8, 64
COLUMNS = 64  # columns of the heads of one program, at most, where a head has fewer


def factor_arguments(values: Tensor | None, mask: EdgeMask | None) -> tuple[Any, ...]:
    """The kernel arguments of the factors of edges.

    Args:
        values: (E,) edge weights, in the order in which the kernel reads the edges; None: all 1.
        mask: the attention dropout; None: none.
    """
    if mask is None:
        return values, None, None, None, 0, 0, 0, 1.0
    ids = (mask.target_id.contiguous(), mask.source_id.contiguous())
    seed = signed(mask.seed ^ KEY_OF_EDGES << 32)
    return values, *ids, mask.epoch, seed, mask.layer, mask.threshold, mask.scale


def padded_depth(num_heads: int, depth: int, unit: int) -> int:
    """Columns of the vectors that hold any one head: a power of two."""
    shift = max(head * depth % unit for head in range(min(num_heads, unit)))
    return max(unit, triton.next_power_of_2(shift + depth))


def shape_of(
    num_items: int, most: int, num_heads: int, depth: int, like: Tensor, numbers: int = 16, registers: int | None = None
) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid, and the compile-time constants of a program's shape, for items of up to ``most`` edges.

    Args:
        num_heads, depth: heads of a row, and columns of a head.
        like: a tensor of the dtype of the rows.
        numbers: float32 numbers of rows of X that a thread reads at a time, for heads of up to ``COLUMNS`` columns;
            half as many of float64.
        registers: limit on the registers of a thread if the rows are float32.
    """
    unit = VECTOR_BYTES // like.element_size()
    padded = padded_depth(num_heads, depth, unit)
    heads = min(triton.next_power_of_2(num_heads), max(1, COLUMNS // padded))
    columns = heads * padded
    numbers = (numbers if columns <= COLUMNS else min(numbers, 8)) * unit // 4
    lanes = max(MIN_LANES, min(MAX_LANES, 128 * numbers // columns))
    edges = min(lanes, CHAIN, triton.next_power_of_2(most or 1))
    warps = max(1, min(16, lanes * columns // (32 * numbers)))
    constants = {"K": num_heads, "D": depth, "ROWS": lanes // edges, "EDGES": edges, "HEADS": heads, "DEPTH": padded}
    constants |= {"EVEN": num_heads % heads == 0 and padded == depth, "UNIT": unit, "num_warps": warps}
    constants |= {"maxnreg": registers if unit == 4 and warps == 4 else None}
    return (triton.cdiv(num_items, lanes // edges), triton.cdiv(num_heads, heads)), constants


def item_arguments(items: EdgeItems) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """The kernel arguments of the items."""
    return items.begin, items.end, items.row, len(items.begin)


def sum_over_bins(
    bins: RowBins, launch: Callable[..., None], outputs: Sequence[Tensor], num_heads: int, accumulate: bool
) -> None:
    """Launch a kernel for all rows of a block by ``launch(items, *outputs, PARTS=False)``, and with PARTS for the parts
    of long rows, whose sums are then joined.

    Args:
        outputs: contiguous (n, K) and (n, K * D) matrices of the kernel's results.
        num_heads: K. Sums for parts are contiguous if they have K columns; otherwise, their rows are padded.
        accumulate: whether the kernel adds to its outputs; it writes to them if not.
    """
    if bins.parts is not None:
        num_parts = len(bins.parts.begin)
        sums = [
            out.new_empty(num_parts, num_heads)
            if out.shape[1] == num_heads
            else zero_padded(num_parts, out.shape[1], like=out)
            for out in outputs
        ]
        for part_sums in sums if accumulate else ():
            part_sums.zero_()
        launch(bins.parts, *sums, PARTS=True)
        for part_sums, out in zip(sums, outputs):
            bins.add_parts(part_sums, out, accumulate)
    for items in reversed(bins.bins):  # the longest first
        launch(items, *outputs, PARTS=False)


@triton.jit
def item_lanes(begin, end, rows, num_items, ROWS: tl.constexpr, EDGES: tl.constexpr):
    """The [LANES] items and their rows, whether they exist, each lane's first edge and the end of its edges."""
    lane = tl.arange(0, ROWS * EDGES)
    item = tl.program_id(0).to(tl.int64) * ROWS + lane // EDGES
    exists = item < num_items
    edge = tl.load(begin + item, mask=exists, other=0) + lane % EDGES
    row = item
    if rows is not None:
        row = tl.load(rows + item, mask=exists, other=0).to(tl.int64)
    return row, exists, edge, tl.load(end + item, mask=exists, other=0)


@triton.jit
def written_rows(rows, num_items, ROWS: tl.constexpr, PARTS: tl.constexpr):
    """The [ROWS] rows to which this program's items are written, and whether they exist."""
    item = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = item
    if rows is not None and not PARTS:
        row = tl.load(rows + item, mask=item < num_items, other=0).to(tl.int64)
    return row, item < num_items


@triton.jit
def columns_of(K: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, DEPTH: tl.constexpr, UNIT: tl.constexpr):
    """The vectors of this program.

    Returns:
        the [VECTORS] head of each vector; whether the vector holds columns of it; whether it is the first that does;
        the [VECTORS, UNIT] columns of a row, and which of them are the head's.
    """
    vector = tl.arange(0, HEADS * DEPTH // UNIT)
    head = tl.program_id(1) * HEADS + vector // (DEPTH // UNIT)
    begin = head * D // UNIT * UNIT + vector % (DEPTH // UNIT) * UNIT
    read = (head < K) & (begin < head * D + D)
    column = begin[:, None] + tl.arange(0, UNIT)[None, :]
    within = read[:, None] & (column >= (head * D)[:, None]) & (column < (head * D + D)[:, None])
    return head, read, read & (vector % (DEPTH // UNIT) == 0), column, within


@triton.jit
def load_rows(x, row, stride, column, exists, read, EVEN: tl.constexpr):
    """The [LANES, VECTORS, UNIT] ``column`` of the [LANES] ``row`` of ``x``, also those of other heads; 0 elsewhere."""
    if EVEN:
        mask = exists[:, None, None]
    else:
        mask = exists[:, None, None] & read[None, :, None]
    return tl.load(x + (row * stride)[:, None, None] + column[None, :, :], mask=mask, other=0)


@triton.jit
def own_columns(rows, within, D: tl.constexpr, UNIT: tl.constexpr):
    """The [LANES, VECTORS, UNIT] ``rows`` with 0 in the columns that belong to another head, or to none."""
    if D % UNIT == 0:
        return rows
    return tl.where(within[None, :, :], rows, 0.0)


@triton.jit
def sum_of_heads(products, HEADS: tl.constexpr):
    """The sums of [LANES, VECTORS, UNIT] ``products`` over the columns of each head: [LANES, VECTORS]."""
    of_vectors = tl.sum(products, 2)
    LANES: tl.constexpr = of_vectors.shape[0]
    VECTORS: tl.constexpr = of_vectors.shape[1]
    if HEADS == VECTORS:
        return of_vectors
    of_heads = tl.sum(tl.reshape(of_vectors, (LANES, HEADS, VECTORS // HEADS)), 2, keep_dims=True)
    return tl.reshape(tl.broadcast_to(of_heads, (LANES, HEADS, VECTORS // HEADS)), (LANES, VECTORS))


@triton.jit
def sum_of_lanes(sums, ROWS: tl.constexpr, EDGES: tl.constexpr):
    """The sums of [LANES, VECTORS] or [LANES, VECTORS, UNIT] ``sums`` over the lanes of each item."""
    if len(sums.shape) == 2:
        split = tl.reshape(sums, (ROWS, EDGES, sums.shape[1]))
    else:
        split = tl.reshape(sums, (ROWS, EDGES, sums.shape[1], sums.shape[2]))
    return tl.sum(split, 1)


@triton.jit
def load_heads(of_heads, row, stride, head, exists, read):
    """The [LANES, VECTORS] numbers of the [LANES] ``row`` and the [VECTORS] ``head`` of each vector, 0 elsewhere."""
    mask = exists[:, None] & read[None, :]
    return tl.load(of_heads + (row * stride)[:, None] + head[None, :], mask=mask, other=0)


@triton.jit
def load_weights(edge_weight, edge, here):
    """The [LANES, 1] weights of the [LANES] edges."""
    return tl.load(edge_weight + edge, mask=here, other=0)[:, None]


@triton.jit
def sloped(number, sign, slope):
    """``number``, but ``slope * number`` where ``sign`` is not positive."""
    return tl.where(sign > 0, number, number * tl.full([1, 1], slope, number.dtype))


@triton.jit
def score(ends, vector, slope, HEADS: tl.constexpr, DYNAMIC: tl.constexpr):
    """The [LANES, VECTORS] logits of edges.

    Args:
        ends: [LANES, VECTORS] sums of the logits of both ends; with DYNAMIC, [LANES, VECTORS, UNIT] sums of both rows.
        vector: [1, VECTORS, UNIT] with DYNAMIC.
    """
    logit = sloped(ends, ends, slope)
    if DYNAMIC:
        logit = sum_of_heads(logit * vector, HEADS)
    return logit


@triton.jit
def add_to(place, number, mask):
    """Add ``number`` to what lies at ``place``."""
    tl.store(place, tl.load(place, mask=mask, other=0) + number, mask=mask)


@triton.jit
def drop_weights(weight, target, source, head, epoch, seed, layer, threshold, drop_scale, HEADS: tl.constexpr):
    """Apply the dropout to the [LANES, VECTORS] ``weight`` of the edges between the [LANES] original ids.

    A call of the generator has the random words of four heads. The calls of a lane are made once, by as many threads,
    and their sum has a bit for each head of this program. Without this sum, that is for one call, the compiler would
    let every thread that holds a vector make the call; so there are two calls at least.
    """
    GROUPS: tl.constexpr = HEADS // 4 if HEADS > 8 else 2
    first = tl.program_id(1) * HEADS // 4 * 4
    high = (target >> 32) + ((source >> 32) << 8) + (layer << 24)
    group = first // 4 + tl.arange(0, GROUPS)
    word_0 = tl.cast(target, tl.uint32)[:, None]
    word_1 = tl.cast(source, tl.uint32)[:, None]
    word_2 = tl.cast(high[:, None] + (group << 16)[None, :], tl.uint32)
    word_3 = tl.cast(tl.load(epoch), tl.uint32)
    least = tl.cast(threshold, tl.uint32)
    random_0, random_1, random_2, random_3 = tl.philox(tl.cast(seed, tl.int64), word_0, word_1, word_2, word_3)
    bits = (random_0 >= least).to(tl.int32) | ((random_1 >= least).to(tl.int32) << 1)
    bits = bits | ((random_2 >= least).to(tl.int32) << 2) | ((random_3 >= least).to(tl.int32) << 3)
    bits = tl.where((4 * tl.arange(0, GROUPS) < HEADS)[None, :], bits, 0)
    of_lane = tl.sum(bits << (4 * tl.arange(0, GROUPS))[None, :], 1)
    keep = (of_lane[:, None] >> (head - first)[None, :]) & 1
    return tl.where(keep != 0, weight * tl.full([1, 1], drop_scale, weight.dtype), 0.0)
