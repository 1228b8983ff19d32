"""Vector operations, as in ``support/vectors.py``, on rows that consist of heads. Importing this module imports numba.

A row of K heads has D columns of head 0, then D columns of head 1, and so on. Weights of heads are rows of K numbers.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import sys

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fullgnn.kernels.dropout import _philox_cpu
from fullgnn.kernels.edges import _mask_cpu
from fullgnn.kernels.support.aligned import LINE_BYTES, MAX_ROW_LINES, lanes_of
from fullgnn.kernels.support.vectors import (
    I32,
    RowVectors,
    broadcast,
    compiled_with,
    each_vector,
    exponential,
    load,
    shuffle_mask,
    store,
    sum_of_row,
    times,
    vectorwise,
)

compiled = compiled_with(sys.modules[__name__], _philox_cpu, _mask_cpu)
"""``compiled`` for loops that call functions of these modules."""


class Heads:
    """How loops of ``bits``-bit floats go over rows of ``num_heads`` heads of ``depth`` columns.

    A row is cut into ``num_slices`` slices of ``heads`` heads, each of at most ``most_lines`` cache lines, so that a
    slice stays in registers. A head of more than a vector whose columns fill no whole vectors is a slice of its own,
    since a head that begins inside a vector costs shuffles.

    ``head_sums`` adds the columns of a lone head in another order than those of several heads, so ``most_lines`` never
    decides whether a head is alone: the sums are the same for any ``most_lines``.
    """

    def __init__(self, bits: int, num_heads: int, depth: int, most_lines: int = MAX_ROW_LINES):
        self.size = bits // 8
        self.full_lanes = LINE_BYTES // self.size
        whole = depth < self.full_lanes or depth % self.full_lanes == 0
        divisors = [k for k in range(1, num_heads + 1) if num_heads % k == 0]

        def heads_within(lines: int) -> int:
            return max(k for k in divisors if k == 1 or (whole and k * depth <= lines * self.full_lanes))

        self.heads = heads_within(MAX_ROW_LINES)
        if self.heads > 1:
            self.heads = max(heads_within(most_lines), divisors[1])
        self.num_slices = num_heads // self.heads
        self.slice_bytes = self.heads * depth * self.size
        self.weights = self.layout(num_heads)  # of a row of weights
        self.columns = self.layout(self.heads * depth)  # of a slice

    def layout(self, width: int) -> tuple[int, int, int]:
        """(lanes, vectors, offset of the last vector in bytes) of the ``RowVectors`` of a row of ``width`` numbers."""
        lanes = lanes_of(width, self.full_lanes)
        return lanes, -(-width // lanes), (width - lanes) * self.size


@vectorwise
def subtract(builder, a, b):
    """``a - b``."""
    return builder.fsub(a, b)


@vectorwise
def multiply(builder, a, b):
    """``a * b``, number by number. If ``add`` follows, the compiler may fuse both into one operation."""
    return builder.fmul(a, b, flags=("contract",))


@vectorwise
def larger(builder, a, b):
    """The larger of two numbers, or that of ``a`` where one is nan."""
    return builder.select(builder.fcmp_ordered(">", b, a), b, a)


@intrinsic
def sloped(_, row, sign, slope):
    """``row``, but ``slope * row`` where ``sign`` is not positive: a LeakyReLU if both are one row."""

    def codegen(context, builder, signature, args):
        factors, zero = broadcast(builder, row.lanes, args[2]), ir.Constant(row.vector, None)

        def choose(u: ir.Value, v: ir.Value) -> ir.Value:
            return builder.select(builder.fcmp_ordered(">", v, zero), u, builder.fmul(u, factors))

        return each_vector(builder, row, choose, args[0], args[1])

    return row(row, row, row.number), codegen


@vectorwise
def exp_difference(builder, a, b):
    """exp(``a - b``), where no number of ``a`` exceeds that of ``b``; exp(-inf) where both are -inf.

    Results below the smallest normal number are 0.
    """
    infinite, zero = ir.Constant(a.type, [float("-inf")] * a.type.count), ir.Constant(a.type, None)
    z = builder.fsub(a, builder.select(builder.fcmp_ordered("==", b, infinite), zero, b))
    least = ir.Constant(a.type, [-87.0 if a.type.element == ir.FloatType() else -708.0] * a.type.count)
    return builder.select(builder.fcmp_ordered("<", z, least), zero, exponential(builder, z))


@intrinsic(prefer_literal=True)
def spread(_, address, like, heads, depth):
    """A row of the type of ``like`` whose columns hold their head's weight; the weights begin at ``address``."""

    def codegen(context, builder, signature, args):
        num_heads, num_columns = heads.literal_value, depth.literal_value
        element = like.vector.element
        row = ir.Constant(context.get_value_type(like), ir.Undefined)
        for index, first in enumerate(_first_columns(like, num_heads * num_columns)):
            of_lanes = [(first + lane) // num_columns for lane in range(like.lanes)]
            count = 1 << (of_lanes[-1] - of_lanes[0]).bit_length()  # a power of two is loaded at once
            if count > num_heads:
                count = of_lanes[-1] - of_lanes[0] + 1
            start = min(of_lanes[0], num_heads - count)
            place = builder.add(args[0], args[0].type(start * like.bits // 8))
            if count == 1:
                weight = builder.load(builder.inttoptr(place, element.as_pointer()), align=like.bits // 8)
                vector = broadcast(builder, like.lanes, weight)
            else:
                pointer = builder.inttoptr(place, ir.VectorType(element, count).as_pointer())
                few = builder.load(pointer, align=like.bits // 8)
                vector = builder.shuffle_vector(few, few, shuffle_mask([head - start for head in of_lanes]))
            row = builder.insert_value(row, vector, index)
        return row

    return like(types.intp, like, heads, depth), codegen


@intrinsic(prefer_literal=True)
def head_sums(_, row, heads, depth):
    """The sums of the heads of ``row``, as a row of ``heads`` numbers.

    Columns are added in halves: one round adds the second half of every head to its first half, for all heads at once.
    """
    num_heads, columns = heads.literal_value, depth.literal_value
    lanes = lanes_of(num_heads, row.lanes)
    result = RowVectors(row.bits, lanes, -(-num_heads // lanes))

    def codegen(context, builder, signature, args):
        sums = ir.Constant(context.get_value_type(result), ir.Undefined)
        if num_heads == 1:
            only = sum_of_row(builder, row, columns, args[0])
            vector = builder.insert_element(ir.Constant(result.vector, ir.Undefined), only, ir.Constant(I32, 0))
            return builder.insert_value(sums, vector, 0)
        parts = [builder.extract_value(args[0], k) for k in range(row.num_vectors)]
        width, last = num_heads * columns, num_heads * columns - row.lanes

        def place(column: int) -> tuple[int, int]:
            """Vector and lane of a column of ``row``."""
            vector = column // row.lanes
            return (vector, column % row.lanes) if vector < row.num_vectors - 1 else (vector, column - last)

        where, depth_left = [place(column) for column in range(width)], columns
        while depth_left > 1:
            half = (depth_left + 1) // 2
            first = [where[k * depth_left + d] for k in range(num_heads) for d in range(half)]
            second = [
                where[k * depth_left + half + d] if half + d < depth_left else None
                for k in range(num_heads)
                for d in range(half)
            ]
            pairs = range(0, len(first), row.lanes)
            parts = [
                builder.fadd(*(_picked(builder, row, parts, w[k : k + row.lanes]) for w in (first, second)))
                for k in pairs
            ]
            where, depth_left = [divmod(k, row.lanes) for k in range(len(first))], half
        for index, first_head in enumerate(_first_columns(result, num_heads)):
            vector = _picked(builder, row, parts, where[first_head : first_head + lanes])
            sums = builder.insert_value(sums, _cut(builder, vector, lanes), index)
        return sums

    return result(row, heads, depth), codegen


@numba.njit(nogil=True)
def weigh_edges(numbers, last, row_bytes, edge_weight, like):
    """Multiply a row of numbers for each edge, of the type of ``like``, by the weight of the edge.

    Args:
        numbers: address of the first row, from which ``row_bytes`` lead to each next row.
        last: see ``load``.
        edge_weight: (count,).
    """
    for k in range(len(edge_weight)):
        place = numbers + k * row_bytes
        store(place, last, times(load(place, last, like), edge_weight[k]))


@numba.njit(nogil=True)
def exp_rows(numbers, num_bytes, bases, period, like):
    """Replace numbers by exp(number - base) in whole vectors of a cache line, of the type of ``like``.

    Args:
        numbers: address of ``num_bytes`` of numbers; what lies behind them in their last vector is replaced as well.
        bases: address of the bases, which repeat after ``period`` bytes.
    """
    at = 0
    for place in range(0, num_bytes, LINE_BYTES):
        base = load(bases + at, 0, like)
        store(numbers + place, 0, exp_difference(load(numbers + place, 0, like), base))
        at += LINE_BYTES
        if at == period:
            at = 0


def _first_columns(lines: RowVectors, width: int) -> list[int]:
    """The first column of each vector of a row of ``width`` columns."""
    return [*range(0, (lines.num_vectors - 1) * lines.lanes, lines.lanes), width - lines.lanes]


def _picked(
    builder: ir.IRBuilder, lines: RowVectors, parts: list[ir.Value], wanted: list[tuple[int, int] | None]
) -> ir.Value:
    """A vector of the (vector, lane) numbers of ``parts`` that are ``wanted``, then anything; None: a zero."""
    zero = ir.Constant(lines.vector, None)
    padded = [*wanted, *[wanted[0]] * (lines.lanes - len(wanted))]
    sources = sorted({-1 if origin is None else origin[0] for origin in padded})
    operands = {source: zero if source < 0 else parts[source] for source in sources}

    def lane(origin: tuple[int, int] | None, source: int, at: int) -> int | None:
        mine = origin is None if source < 0 else origin is not None and origin[0] == source
        return (at if origin is None else origin[1]) if mine else None

    result, known = operands[sources[0]], [lane(origin, sources[0], at) for at, origin in enumerate(padded)]
    for source in sources[1:]:
        added = [lane(origin, source, at) for at, origin in enumerate(padded)]
        mask = [
            old if old is not None else lines.lanes + new if new is not None else 0 for old, new in zip(known, added)
        ]
        result = builder.shuffle_vector(result, operands[source], shuffle_mask(mask))
        known = [at if old is not None or new is not None else None for at, (old, new) in enumerate(zip(known, added))]
    if len(sources) == 1:
        result = builder.shuffle_vector(result, zero, shuffle_mask([0 if at is None else at for at in known]))
    return result


def _cut(builder: ir.IRBuilder, vector: ir.Value, lanes: int) -> ir.Value:
    """The first ``lanes`` lanes of ``vector``."""
    if vector.type.count == lanes:
        return vector
    return builder.shuffle_vector(vector, vector, shuffle_mask(list(range(lanes))))
