"""The compiled loops of :mod:`fullgnn.codecs.scalar`. Importing this module imports numba.

Byte b of the W bytes of codes of a row holds the codes of the columns b, b + W, b + 2 W, ..., the first in its lowest
bits. So W consecutive bytes make W consecutive columns.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fullgnn.kernels.support.aligned import LINE_BYTES
from fullgnn.kernels.support.vectors import I32, compiled, prefetch, shuffle_mask, zeros

LANES = 16
"""Columns that are decoded at a time: of float32, one register of AVX-512, two of AVX2."""

AHEAD = 8
"""So many rows ahead, codes are prefetched: waiting for them took longer than decoding."""


@compiled()
def pack_rows(x, origin, divisor, bits, codes):
    """Write the codes of (m, F) ``x`` to (m, W) uint8 ``codes``. A single bit tells what is above ``origin``.

    Args:
        origin, divisor: float64, (1, F) or (m, 1).
    """
    width, num_columns = codes.shape[1], x.shape[1]
    top, down, along = np.float64((1 << bits) - 1), int(len(origin) > 1), int(origin.shape[1] > 1)
    for i in range(len(x)):
        codes[i, :] = 0
        for k in range(8 // bits):
            for j in range(k * width, min((k + 1) * width, num_columns)):
                distance = np.float64(x[i, j]) - origin[i * down, j * along]
                if bits == 1:
                    code = np.uint8(distance > 0.0)
                else:
                    code = np.uint8(np.rint(min(max(distance / divisor[i * down, j * along], 0.0), top)))
                codes[i, j - k * width] |= code << np.uint8(k * bits)


@compiled()
def unpack_rows(table, index, low, step, out, head, bits, first, stop):
    """Decode the rows ``index[first:stop]`` of ``table`` to the rows ``first`` to ``stop`` of (m, F) ``out``.

    Args:
        table: (n, head + W) uint8.
        index: (m,) ids; (0,): 0, 1, ...
        low, step: of the dtype of ``out``, (F,); where each row has its own, (0,).
        head: bytes before the codes of a row: 8, if they are its lowest and highest level, two float32; or 0.
    """
    row_bytes, num_columns, size, along = table.shape[1], out.shape[1], out.itemsize, int(head == 0)
    width, mask, line, scale = row_bytes - head, (1 << bits) - 1, zeros(32, 16, 1), np.zeros(2, np.float32)
    if head > 0:
        low, step = np.empty(LANES, out.dtype), np.empty(LANES, out.dtype)
    lows, steps, codes = low.ctypes.data, step.ctypes.data, table.ctypes.data
    for i in range(first, stop):
        row = index[i] if len(index) > 0 else i
        if row < 0 or row >= len(table):
            raise IndexError("an id is that of no row of the table")
        if len(index) > 0:
            for at in range(0, row_bytes, LINE_BYTES):
                prefetch(codes + index[min(i + AHEAD, stop - 1)] * row_bytes + at, line)
        if head > 0:
            scale.view(np.uint8)[:] = table[row, :8]
            low[:] = scale[0]
            step[:] = (out.dtype.type(scale[1]) - low[0]) / out.dtype.type(mask)
        for k in range(8 // bits):
            begin, count = k * width, min(width, num_columns - k * width)
            source, to = codes + row * row_bytes + head, out.ctypes.data + (i * num_columns + begin) * size
            for start in range(0, count if count >= LANES else 0, LANES):
                b = min(start, count - LANES)  # the last columns may be written twice
                j = (begin + b) * along * size
                unpack(source + b, k * bits, mask, lows + j, steps + j, to + b * size, low[0])
            for b in range(0 if count >= LANES else count):
                code, j = (table[row, head + b] >> (k * bits)) & mask, (begin + b) * along
                out[i, begin + b] = low[j] + step[j] * out.dtype.type(code)


@intrinsic
def unpack(_, codes, shift, mask, low, step, out, number):
    """Write low + step ((code >> shift) & mask) for ``LANES`` consecutive bytes. numba vectorises a loop over them
    badly: it widens each byte to 64 bits, and decodes the last columns one by one.

    Args:
        codes, low, step, out: addresses.
        number: of the type of the numbers at ``low``, ``step`` and ``out``.
    """

    def codegen(context, builder, signature, args):
        element = context.get_value_type(signature.args[-1])
        integers, numbers = ir.VectorType(I32, LANES), ir.VectorType(element, LANES)

        def at(address: ir.Value, kind: ir.Type) -> ir.Value:
            return builder.inttoptr(address, kind.as_pointer())

        def everywhere(number: ir.Value) -> ir.Value:
            vector = builder.insert_element(ir.Constant(integers, ir.Undefined), builder.trunc(number, I32), I32(0))
            return builder.shuffle_vector(vector, vector, shuffle_mask([0] * LANES))

        word = builder.zext(builder.load(at(args[0], ir.VectorType(ir.IntType(8), LANES)), align=1), integers)
        code = builder.and_(builder.lshr(word, everywhere(args[1])), everywhere(args[2]))
        low, step = (
            builder.load(at(address, numbers), align=signature.args[-1].bitwidth // 8) for address in args[3:5]
        )
        product = builder.fmul(step, builder.sitofp(code, numbers))  # without leave to fuse it with the sum
        builder.store(builder.fadd(low, product), at(args[5], numbers), align=signature.args[-1].bitwidth // 8)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6, number), codegen
