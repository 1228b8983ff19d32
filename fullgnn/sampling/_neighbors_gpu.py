"""The kernels of :mod:`fullgnn.sampling.gpu_neighbors`. Importing this module imports Triton.

A bitmap has a bit for each node, in words of 32 bits, and is all zeros before and after a batch.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import triton
import triton.language as tl

THREADS = 128  # elements of a program
RETRY = tl.constexpr(1 << 24)  # step of the second counter word for a word that is drawn again
SHIFT = tl.constexpr(32)
LOW = tl.constexpr(0xFFFFFFFF)


@triton.jit
def draw(
    indptr,
    targets,
    starts,
    places,
    count,
    fanout,
    hop: tl.int64,
    epoch: tl.int64,
    key: tl.int64,
    REPLACE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Draw the places of the edges of each target; one thread draws those of one target.

    The draws are those of ``_neighbors_cpu._draw_uniform``, word for word.

    Args:
        indptr: (n + 1,) int64 of the graph.
        targets: int32 GLOBAL ids of ``count`` targets, and of any nodes behind them.
        starts: int64, the first edge of each target.
        places: int64, written for the edges of the targets.
        count: (1,) int64.
        key: both words of the key of the random stream.
    """
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_row = row < tl.load(count)
    node = tl.load(targets + row, mask=is_row, other=0).to(tl.int64)
    first = tl.load(indptr + node, mask=is_row, other=0)
    degree = tl.load(indptr + node + 1, mask=is_row, other=0) - first
    out = places + tl.load(starts + row, mask=is_row, other=0)
    whole = degree <= fanout
    drawn = is_row & (degree > 0)
    if not REPLACE:
        for d in range(0, fanout):
            tl.store(out + d, first + d, mask=is_row & whole & (d < degree))
        drawn = drawn & (degree > fanout)
    for group in range(0, (fanout + 3) // 4):
        words = _words(key, node, group, hop, epoch)
        for lane in tl.static_range(4):
            d = group * 4 + lane
            active = drawn & (d < fanout)
            last = degree - fanout + d
            bound = tl.where(active, degree if REPLACE else last + 1, 1)
            number = _below(words[lane], bound, key, node, group, lane, hop, epoch)
            if not REPLACE:
                for before in range(0, d):  # this thread has written them
                    number = tl.where(tl.load(out + before, mask=active, other=-1) == first + number, last, number)
            tl.store(out + d, first + number, mask=active)


@triton.jit
def _words(key, node, group, hop, epoch):
    """The four random words of each target for one group of four draws, as int64."""
    zero = node * 0
    words = tl.philox(
        key,
        node.to(tl.uint32),
        (zero + group).to(tl.uint32),
        (zero + hop).to(tl.uint32),
        (zero + epoch).to(tl.uint32),
    )
    return (
        words[0].to(tl.uint32).to(tl.int64),
        words[1].to(tl.uint32).to(tl.int64),
        words[2].to(tl.uint32).to(tl.int64),
        words[3].to(tl.uint32).to(tl.int64),
    )


@triton.jit
def _below(word, bound, key, node, group, lane: tl.constexpr, hop, epoch):
    """A number below ``bound`` from each word, see ``_neighbors_cpu._below``. The bound is below 2^31."""
    product = word * bound
    least = (1 << 32) % bound
    refused = (product & LOW) < least
    turn = 0
    while tl.max(refused.to(tl.int32), axis=0) > 0:
        turn += 1
        words = _words(key, node, group + turn * RETRY, hop, epoch)
        product = tl.where(refused, words[lane] * bound, product)
        refused = refused & ((product & LOW) < least)
    return product >> SHIFT


@triton.jit
def mark(nodes, count, bits, BLOCK: tl.constexpr):
    """Set the bits of the first ``count[0]`` of the int32 ``nodes``."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < tl.load(count)
    node = tl.load(nodes + at, mask=inside, other=0)
    word = bits + (node >> 5)
    bit = tl.full([BLOCK], 1, tl.int32) << (node & 31)
    unset = (tl.load(word, mask=inside, other=0) & bit) == 0  # most bits are set already: no atomic for those
    tl.atomic_or(word, bit, mask=inside & unset, sem="relaxed")


@triton.jit
def count_bits(bits, counts, num_words, BLOCK: tl.constexpr):
    """Write the number of ones in each word."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(bits + at, mask=at < num_words, other=0)
    tl.store(counts + at, _ones(word), mask=at < num_words)


@triton.jit
def _ones(word):
    """The number of ones of each 32-bit word."""
    word = word.to(tl.uint32, bitcast=True)
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def list_nodes(bits, before, nodes, num_words, BLOCK: tl.constexpr):
    """Write the nodes whose bits are set, in ascending order.

    Args:
        before: (num_words,) int32, the ones before each word.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < num_words
    word = tl.load(bits + at, mask=inside, other=0)
    place = tl.load(before + at, mask=inside, other=0)
    for bit in range(0, 32):
        is_set = ((word >> bit) & 1) == 1
        tl.store(nodes + place, at * 32 + bit, mask=inside & is_set)
        place += is_set.to(tl.int32)


@triton.jit
def rename(ids, local, count, bits, before, BLOCK: tl.constexpr):
    """Write the LOCAL id of each of the first ``count[0]`` int32 ``ids``: the number of ones before its bit."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < tl.load(count)
    node = tl.load(ids + at, mask=inside, other=0)
    word = tl.load(bits + (node >> 5), mask=inside, other=0)
    lower = (tl.full([BLOCK], 1, tl.int32) << (node & 31)) - 1
    tl.store(local + at, tl.load(before + (node >> 5), mask=inside, other=0) + _ones(word & lower), mask=inside)
