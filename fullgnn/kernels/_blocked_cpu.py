"""The compiled loops of :mod:`fullgnn.kernels.blocked`. Importing this module imports numba.

numba's own loops over a row of a matrix keep the running sum in memory. Here a row is one value of a type of its own,
``Lines``, made of generic LLVM vectors that stay in registers: one of 64 bytes is one register with AVX-512, two with
AVX2 and four with NEON.

All of it is in one file, for numba's cache on disk knows the age of the file that a compiled function stands in, but
not of those it takes its parts from.
"""

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, register_model

PADDING = 32  # column ids past the last one that ``multiply`` may read, though never use
I32 = ir.IntType(32)


class Lines(types.Type):
    """The numba type of a row in ``num_vectors`` vectors of ``lanes`` floats of ``bits`` bits each.

    The width of a row need not be a multiple of ``lanes``: the last vector holds the LAST ``lanes`` columns, some of
    which the vector before it may hold as well. So no vector reaches beyond the row, and none needs a mask.
    """

    def __init__(self, bits: int, lanes: int, num_vectors: int):
        super().__init__(f"Lines({bits}, {lanes}, {num_vectors})")
        self.bits, self.lanes, self.num_vectors = bits, lanes, num_vectors
        self.number = types.float32 if bits == 32 else types.float64
        self.vector = ir.VectorType(ir.FloatType() if bits == 32 else ir.DoubleType(), lanes)
        self.vector_bytes = lanes * bits // 8


@register_model(Lines)
class _LinesModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Lines):
        super().__init__(dmm, fe_type, ir.ArrayType(fe_type.vector, fe_type.num_vectors))


@intrinsic(prefer_literal=True)
def zeros(_, bits, lanes, num_vectors):
    """A ``Lines`` of zeros. The arguments are compile-time constants."""
    lines = Lines(bits.literal_value, lanes.literal_value, num_vectors.literal_value)

    def codegen(context, builder, signature, args):
        return ir.Constant(context.get_value_type(lines), None)

    return lines(bits, lanes, num_vectors), codegen


@intrinsic
def load(_, address, last, like):
    """The row at ``address``, with its last vector at ``address + last``, as a ``Lines`` of the type of ``like``."""

    def codegen(context, builder, signature, args):
        address, last, row = args
        for k, pointer in enumerate(_pointers(builder, like, address, last)):
            row = builder.insert_value(row, builder.load(pointer, align=like.bits // 8), k)
        return row

    return like(types.intp, types.intp, like), codegen


@intrinsic
def store(_, address, last, row):
    """Write ``row`` to where ``load`` would have read it."""
    lines = row

    def codegen(context, builder, signature, args):
        address, last, row = args
        for k, pointer in enumerate(_pointers(builder, lines, address, last)):
            builder.store(builder.extract_value(row, k), pointer, align=lines.bits // 8)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, lines), codegen


@intrinsic
def prefetch(_, address, like):
    """Have the cache lines of the row at ``address`` fetched. Any address will do: none is ever read."""

    def codegen(context, builder, signature, args):
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
        function = builder.module.declare_intrinsic("llvm.prefetch.p0i8", fnty=kind)
        read, keep, data = I32(0), I32(3), I32(1)
        for k in range(like.num_vectors):
            line = builder.add(args[0], args[0].type(k * like.vector_bytes))
            builder.call(function, [builder.inttoptr(line, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.intp, like), codegen


@intrinsic
def add(_, a, b):
    """``a + b`` of two ``Lines``."""

    def codegen(context, builder, signature, args):
        return _each_vector(builder, a, lambda u, v: builder.fadd(u, v, flags=("contract",)), *args)

    return a(a, a), codegen


@intrinsic
def times(_, row, factor):
    """``factor * row``, by a single number. With an ``add`` after it, this may become one fused operation."""

    def codegen(context, builder, signature, args):
        undefined = ir.Constant(row.vector, ir.Undefined)
        first = builder.insert_element(undefined, args[1], I32(0))
        factors = builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, row.lanes), None))
        return _each_vector(builder, row, lambda u: builder.fmul(u, factors, flags=("contract",)), args[0])

    return row(row, row.number), codegen


def _pointers(builder: ir.IRBuilder, lines: Lines, address: ir.Value, last: ir.Value) -> list[ir.Value]:
    """Where the vectors of a row at ``address`` lie."""
    offsets = [address.type(k * lines.vector_bytes) for k in range(lines.num_vectors - 1)]
    return [builder.inttoptr(builder.add(address, at), lines.vector.as_pointer()) for at in (*offsets, last)]


def _each_vector(builder: ir.IRBuilder, lines: Lines, function: Callable[..., ir.Value], *rows: ir.Value) -> ir.Value:
    """The row of ``function`` of the vectors of ``rows``."""
    result = rows[0]
    for k in range(lines.num_vectors):
        result = builder.insert_value(result, function(*(builder.extract_value(row, k) for row in rows)), k)
    return result


def compiled(*variant: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Compile a function to run without the GIL, and keep the result on disk where there is a folder to write to.

    Args:
        variant: what tells this function from others of its name, its types included. Each variant gets files of its
            own: of several in one file, two processes that compile at the same time may load each other's.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        function.__qualname__ = "_".join(str(part) for part in (function.__name__, *variant))
        try:
            return numba.njit(nogil=True, cache=True)(function)
        except RuntimeError:  # numba found no such folder
            return numba.njit(nogil=True)(function)

    return decorate


@functools.cache
def multiplier(bits: int, lanes: int, num_vectors: int, column_type: str, weighted: bool) -> Callable[..., None]:
    """The product for rows of ``Lines(bits, lanes, num_vectors)`` and a ``Layout`` of these types."""
    lookahead = min(PADDING, 128 // num_vectors)  # edges; farther for narrow rows, of which each takes less time

    @compiled(bits, lanes, num_vectors, column_type, "weighted" if weighted else "pattern")
    def multiply(
        starts,
        columns,
        values,
        num_blocks,
        num_rows,
        first_row,
        stop_row,
        x,
        x_stride,
        x_block,
        out,
        out_stride,
        last,
        scale,
        accumulate,
    ):
        """Compute some rows, block after block: each adds to what those before it have left in the output.

        Edge numbers are unsigned: for a signed index, numba checks at every edge whether it counts from the end.

        Args:
            starts, columns, values, num_blocks: of the ``Layout``; ``values`` is None for a pattern.
            x, out: addresses of the first column of X and of the output.
            x_stride, out_stride: from one row to the next, in bytes.
            x_block: from the first row of X that a block reads to that of the next block, in bytes.
            last: from the start of a row to its last vector, in bytes.
            scale: (num_rows,), or (0,) for none.
        """
        zero = zeros(bits, lanes, num_vectors)
        for block in range(num_blocks):
            base = x + block * x_block
            keep = accumulate or block > 0
            scaled = len(scale) > 0 and block == num_blocks - 1
            for row in range(first_row, stop_row):
                total = load(out + row * out_stride, last, zero) if keep else zero
                edge, end = np.uint64(starts[block * num_rows + row]), np.uint64(starts[block * num_rows + row + 1])
                while edge < end:
                    prefetch(base + np.intp(columns[edge + np.uint64(lookahead)]) * x_stride, zero)
                    neighbour = load(base + np.intp(columns[edge]) * x_stride, last, zero)
                    if values is not None:
                        neighbour = times(neighbour, values[edge])
                    total = add(total, neighbour)
                    edge += np.uint64(1)
                if scaled:
                    total = times(total, scale[row])
                store(out + row * out_stride, last, total)

    return multiply


@functools.cache
def regrouper(column_type: str, new_column_type: str, value_type: str) -> Callable[..., None]:
    """The copy from one ``Layout`` to another, of these types."""

    @compiled(column_type, new_column_type, value_type)
    def regroup(num_rows, num_blocks, shift, starts, columns, values, new_shift, new_starts, new_columns, new_values):
        """Copy all edges into blocks of ``2**new_shift`` columns: one pass to count them, one to place them.

        Args:
            new_starts: (new_num_blocks * num_rows + 2,) zeros; the last element is of no use afterwards.
        """
        for row in range(num_rows):
            for block in range(num_blocks):
                for edge in range(starts[block * num_rows + row], starts[block * num_rows + row + 1]):
                    new_block = (np.intp(columns[edge]) + (block << shift)) >> new_shift
                    new_starts[new_block * num_rows + row + 2] += 1
        for k in range(2, len(new_starts)):
            new_starts[k] += new_starts[k - 1]
        for row in range(num_rows):
            for block in range(num_blocks):
                for edge in range(starts[block * num_rows + row], starts[block * num_rows + row + 1]):
                    column = np.intp(columns[edge]) + (block << shift)
                    new_block = column >> new_shift
                    # Where the next edge of this row and block goes; in the end, where those of the next row begin.
                    next_place = new_block * num_rows + row + 1
                    new_columns[new_starts[next_place]] = column - (new_block << new_shift)
                    if values is not None:
                        new_values[new_starts[next_place]] = values[edge]
                    new_starts[next_place] += 1

    return regroup
