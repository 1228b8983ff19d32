"""Rows of a matrix as vectors: the numba types and operations with which a compiled loop keeps a row in registers.

If numba compiles an ordinary loop over a row of a matrix, a running sum stays in memory. Here a row is one value of the
type ``RowVectors``, which consists of generic LLVM vectors that stay in registers: a vector of 64 bytes is one register
with AVX-512, two with AVX2 and four with NEON. Importing this module imports numba.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import fcntl
import functools
import inspect
import itertools
import math
import os
import secrets
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.bytecode import FunctionIdentity
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model

from fullgnn.kernels.support.aligned import LINE_BYTES
from fullgnn.kernels.support.compile_time import waited

I32 = ir.IntType(32)
LOG_2_HIGH = 0.693359375  # log 2, rounded to nine bits
LOCKS = "compiling.lock"
"""The file, in the folder of compiled functions, of which a process locks a byte for each function that it compiles."""
_FINGERPRINT = zlib.crc32(inspect.getsource(sys.modules[__name__]).encode())


class RowVectors(types.Type):
    """The numba type of a row: ``num_vectors`` vectors of ``lanes`` floats of ``bits`` bits each.

    The width of a row need not be a multiple of ``lanes``: the last vector holds the LAST ``lanes`` columns, and the
    vector before it may hold some of them as well. So no vector reaches beyond the row, and no vector needs a mask.
    """

    def __init__(self, bits: int, lanes: int, num_vectors: int):
        super().__init__(f"RowVectors({bits}, {lanes}, {num_vectors})")
        self.bits, self.lanes, self.num_vectors = bits, lanes, num_vectors
        self.number = types.float32 if bits == 32 else types.float64
        self.vector = ir.VectorType(ir.FloatType() if bits == 32 else ir.DoubleType(), lanes)
        self.vector_bytes = lanes * bits // 8


@register_model(RowVectors)
class _RowVectorsModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: RowVectors):
        super().__init__(dmm, fe_type, ir.ArrayType(fe_type.vector, fe_type.num_vectors))


@intrinsic(prefer_literal=True)
def zeros(_, bits, lanes, num_vectors):
    """A ``RowVectors`` of zeros. The arguments are compile-time constants."""
    lines = RowVectors(bits.literal_value, lanes.literal_value, num_vectors.literal_value)

    def codegen(context, builder, signature, args):
        return ir.Constant(context.get_value_type(lines), None)

    return lines(bits, lanes, num_vectors), codegen


@intrinsic
def load(_, address, last, like):
    """Load the row at ``address``, with its last vector at ``address + last``, as a value of the type of ``like``."""

    def codegen(context, builder, signature, args):
        address, last, row = args
        for k, pointer in enumerate(_pointers(builder, like, address, last)):
            row = builder.insert_value(row, builder.load(pointer, align=like.bits // 8), k)
        return row

    return like(types.intp, types.intp, like), codegen


@intrinsic
def store(_, address, last, row):
    """Write ``row`` to the place from which ``load`` with the same arguments reads it."""
    lines = row

    def codegen(context, builder, signature, args):
        address, last, row = args
        for k, pointer in enumerate(_pointers(builder, lines, address, last)):
            builder.store(builder.extract_value(row, k), pointer, align=lines.bits // 8)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, lines), codegen


@intrinsic
def prefetch(_, address, like):
    """Prefetch the cache lines of the row at ``address``. Any address is safe, since a prefetch never faults."""

    def codegen(context, builder, signature, args):
        for first in range(0, like.num_vectors * like.vector_bytes, LINE_BYTES):
            prefetch_line_at(builder, builder.add(args[0], args[0].type(first)))
        return context.get_dummy_value()

    return types.void(types.intp, like), codegen


def prefetch_line_at(builder: ir.IRBuilder, address: ir.Value) -> None:
    """Prefetch the cache line at ``address``."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    function = builder.module.declare_intrinsic("llvm.prefetch.p0i8", fnty=kind)
    read, keep, data = I32(0), I32(3), I32(1)
    builder.call(function, [builder.inttoptr(address, byte), read, keep, data])


def vectorwise(function: Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]) -> Any:
    """The operation on two ``RowVectors`` that applies ``function`` vector by vector."""

    def by_vector(_, a, b):
        def codegen(context, builder, signature, args):
            return each_vector(builder, a, functools.partial(function, builder), *args)

        return a(a, b), codegen

    by_vector.__name__, by_vector.__doc__ = function.__name__, function.__doc__
    return intrinsic(by_vector)


@vectorwise
def add(builder, a, b):
    """``a + b``."""
    return builder.fadd(a, b, flags=("contract",))


@vectorwise
def rounding_error(builder, a, b):
    """The exact rounding error of ``add(a, b)``: a + b = add(a, b) + rounding_error(a, b).

    Source: Knuth, "The Art of Computer Programming", volume 2, section 4.2.2, theorem B.
    """
    total = builder.fadd(a, b)
    of_b = builder.fsub(total, a)
    of_a = builder.fsub(total, of_b)
    return builder.fadd(builder.fsub(a, of_a), builder.fsub(b, of_b))


@vectorwise
def add_rounding_errors(builder, row, missing):
    """``row + missing``, where ``missing`` is a sum of results of ``rounding_error``.

    Where ``missing`` is nan, as after an addition to an infinity, the result is ``row``.
    """
    return builder.select(builder.fcmp_unordered("uno", missing, missing), row, builder.fadd(row, missing))


@intrinsic
def times(_, row, factor):
    """``factor * row`` for a scalar factor. If ``add`` follows, the compiler may fuse both into one operation."""

    def codegen(context, builder, signature, args):
        factors = broadcast(builder, row.lanes, args[1])
        return each_vector(builder, row, lambda u: builder.fmul(u, factors, flags=("contract",)), args[0])

    return row(row, row.number), codegen


@vectorwise
def where_positive(builder, row, sign):
    """``row``, but 0 where the row ``sign`` is 0 or less. Where ``sign`` is nan, ``row`` is unchanged, as in torch."""
    zero = ir.Constant(row.type, None)
    return builder.select(builder.fcmp_ordered("<=", sign, zero), zero, row)


@intrinsic
def add_outer(_, tile, address, stride, row):
    """``tile`` plus the outer product of some numbers and ``row``.

    The numbers lie ``stride`` bytes apart, from ``address`` on. For each of them, ``tile`` has as many vectors as
    ``row``.
    """

    def codegen(context, builder, signature, args):
        tile, place, stride, values = args
        vectors = [builder.extract_value(values, v) for v in range(row.num_vectors)]
        for k in range(signature.args[0].num_vectors // row.num_vectors):
            number = builder.load(builder.inttoptr(place, row.vector.element.as_pointer()), align=row.bits // 8)
            factor = broadcast(builder, row.lanes, number)
            for v, vector in enumerate(vectors):
                index = k * row.num_vectors + v
                product = builder.fmul(factor, vector, flags=("contract",))
                total = builder.fadd(builder.extract_value(tile, index), product, flags=("contract",))
                tile = builder.insert_value(tile, total, index)
            place = builder.add(place, stride)
        return tile

    return tile(tile, types.intp, types.intp, row), codegen


@intrinsic
def unpredictable(_, number):
    """``number``, in a form in which the compiler cannot predict its value.

    A loop whose counter passes through this function is not unrolled, and so needs no test for an odd number of
    iterations. Where the iterations are few and their number varies, the processor would mispredict that test half the
    time.
    """

    def codegen(context, builder, signature, args):
        return builder.asm(ir.FunctionType(args[0].type, [args[0].type]), "", "=r,0", args, side_effect=False)

    return number(number), codegen


@intrinsic
def largest(_, row):
    """The largest number of ``row``; if ``row`` contains a nan, any of its numbers."""

    def codegen(context, builder, signature, args):
        vectors = [builder.extract_value(args[0], k) for k in range(row.num_vectors)]
        top = vectors[0]
        for vector in vectors[1:]:
            top = builder.select(builder.fcmp_ordered(">", vector, top), vector, top)
        return reduce(builder, "fmax", row, [top])

    return row.number(row), codegen


@intrinsic(prefer_literal=True)
def total(_, row, width):
    """The sum of ``row``. The compile-time constant ``width`` tells which columns the last two vectors both hold."""

    def codegen(context, builder, signature, args):
        return sum_of_row(builder, row, width.literal_value, args[0])

    return row.number(row, width), codegen


def sum_of_row(builder: ir.IRBuilder, lines: RowVectors, width: int, row: ir.Value) -> ir.Value:
    """The sum of a row of ``lines``, which has ``width`` columns."""
    vectors = [builder.extract_value(row, k) for k in range(lines.num_vectors)]
    shared = lines.num_vectors * lines.lanes - width
    zero = ir.Constant(lines.vector, None)
    fresh = [k if k >= shared else lines.lanes + k for k in range(lines.lanes)]  # the second operand is all 0
    counted = [*vectors[:-1], builder.shuffle_vector(vectors[-1], zero, shuffle_mask(fresh))]
    subtotal = counted[0]
    for vector in counted[1:]:
        subtotal = builder.fadd(subtotal, vector)
    return reduce(builder, "fadd", lines, [ir.Constant(lines.vector.element, 0.0), subtotal])


@intrinsic
def exp_minus(_, row, number):
    """exp(``row - number``) in float32, where no number of ``row`` exceeds ``number``.

    Results below exp(-87) are replaced by exp(-87), which is 0 to working precision.
    """

    def codegen(context, builder, signature, args):
        base = broadcast(builder, row.lanes, args[1])
        return each_vector(builder, row, lambda x: exponential(builder, builder.fsub(x, base)), args[0])

    assert row.bits == 32
    return row(row, row.number), codegen


def exponential(builder: ir.IRBuilder, z: ir.Value) -> ir.Value:
    """exp(``z``) of a vector in which no number exceeds 0.

    Results below the smallest normal number, about exp(-87) or exp(-708), are replaced by one near it.

    exp(z) = 2^n exp(r) with n = round(z / log 2). For r, log 2 is split into two numbers such that n times the first is
    exact (Cody and Waite, "Software Manual for the Elementary Functions", 1980); exp(r) is its power series.
    """
    vector, single = z.type, z.type.element == ir.FloatType()
    mantissa, bias, terms, least = (23, 127, 7, -87.0) if single else (52, 1023, 13, -708.0)
    integers = ir.VectorType(ir.IntType(32 if single else 64), vector.count)

    def constant(number: float) -> ir.Constant:
        return ir.Constant(vector, [_float32(number) if single else number] * vector.count)

    def fma(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))

    lowest, magic = constant(least), constant(1.5 * 2**mantissa)  # adding magic rounds to an integer in its low bits
    z = builder.select(builder.fcmp_ordered("<", z, lowest), lowest, z)  # a nan stays a nan
    rounded = fma(z, constant(1 / math.log(2)), magic)
    n = builder.fsub(rounded, magic)
    r = fma(n, constant(-LOG_2_HIGH), z)
    r = fma(n, constant(LOG_2_HIGH - math.log(2)), r)
    series = constant(1 / math.factorial(terms))
    for k in range(terms - 1, -1, -1):
        series = fma(series, r, constant(1 / math.factorial(k)))
    exponent = builder.add(builder.bitcast(rounded, integers), ir.Constant(integers, [bias] * vector.count))
    power = builder.shl(exponent, ir.Constant(integers, [mantissa] * vector.count))
    return builder.fmul(series, builder.bitcast(power, vector))


def broadcast(builder: ir.IRBuilder, lanes: int, number: ir.Value) -> ir.Value:
    """A vector that holds ``number`` in every one of its ``lanes``."""
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, number, I32(0))
    return builder.shuffle_vector(first, undefined, shuffle_mask([0] * lanes))


def shuffle_mask(lanes: list[int]) -> ir.Constant:
    """The constant that tells LLVM's ``shufflevector`` which ``lanes`` to take."""
    return ir.Constant(ir.VectorType(I32, len(lanes)), lanes)


def _float32(number: float) -> float:
    """``number`` rounded to float32, as LLVM requires of its constants."""
    return float(np.float32(number))


def reduce(builder: ir.IRBuilder, operation: str, lines: RowVectors, args: list[ir.Value]) -> ir.Value:
    """The sum or the maximum of the lanes of a vector."""
    number, vector = lines.vector.element, lines.vector
    kind = ir.FunctionType(number, [*([number] if len(args) > 1 else []), vector])
    name = f"llvm.vector.reduce.{operation}.v{lines.lanes}f{lines.bits}"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, args, fastmath=("reassoc",))


def _pointers(builder: ir.IRBuilder, lines: RowVectors, address: ir.Value, last: ir.Value) -> list[ir.Value]:
    """Pointers to the vectors of a row at ``address``."""
    offsets = [address.type(k * lines.vector_bytes) for k in range(lines.num_vectors - 1)]
    return [builder.inttoptr(builder.add(address, at), lines.vector.as_pointer()) for at in (*offsets, last)]


def each_vector(
    builder: ir.IRBuilder, lines: RowVectors, function: Callable[..., ir.Value], *rows: ir.Value
) -> ir.Value:
    """Apply ``function`` to ``rows`` vector by vector."""
    result = rows[0]
    for k in range(lines.num_vectors):
        result = builder.insert_value(result, function(*(builder.extract_value(row, k) for row in rows)), k)
    return result


def load_compiler() -> None:
    """Load the part of numba that compiles, which takes about a second, and start no thread.

    numba does so by itself before it first compiles a function in a process, or takes one from its cache. The forks of
    a process that has called ``load_compiler`` find it loaded.
    """
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def compiled(*variant: object, fastmath: set[str] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function to run without the GIL, and cache the result on disk if a folder is writable.

    Of several processes on a machine that need the function at the same time, one compiles it, and the others wait.

    Args:
        variant: values that distinguish the function from others of the same name and from its versions for other
            types. Each variant has its own cache files: if several variants shared one file, two processes that
            compile at the same time could load each other's code. The names of the files contain a fingerprint of this
            module, since numba checks the age of the function's own source file, but not of this one.
        fastmath: what LLVM may do to floating-point operations, as in ``numba.njit``.
    """
    njit: Any = functools.partial(numba.njit, nogil=True, fastmath=fastmath or False)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__qualname__ = "_".join(str(part) for part in (function.__name__, *variant, _FINGERPRINT))
        try:
            made = njit(cache=True)(function)
        except RuntimeError:  # numba found no writable folder
            return njit()(function)
        compile_now = made.compile

        def compile_in_turn(signature: Any) -> Any:
            _number_from_anywhere(os.getpid())
            with _turn(Path(made.stats.cache_path), function.__qualname__):
                return compile_now(signature)  # it looks into the cache first

        made.compile = compile_in_turn
        return made

    return decorate


def compiled_with(*modules: ModuleType) -> Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """``compiled`` for functions that call compiled ones of ``modules``, which numba does not check for changes."""
    return functools.partial(compiled, zlib.crc32("".join(inspect.getsource(module) for module in modules).encode()))


@functools.cache
def _number_from_anywhere(process: int) -> None:
    """Let numba number the functions that this ``process`` compiles from a random number on, instead of 1.

    A number is a part of the symbol of what numba compiles for a call such as ``np.argsort``, whose code has the same
    name as that of ``sort``. Two functions that two processes have compiled could have the same symbols for different
    code, and a third process, which finds both in the cache, would call the wrong one.
    """
    FunctionIdentity._unique_ids = itertools.count(secrets.randbits(62))


@contextmanager
def _turn(folder: Path, name: str) -> Iterator[None]:
    """Wait while another process of this machine is in the same turn, if ``folder`` can hold a lock. A process that
    ends frees its locks."""
    with ExitStack() as held:
        with suppress(OSError):
            file = held.enter_context((folder / LOCKS).open("ab"))
            begin = time.perf_counter()
            fcntl.lockf(file, fcntl.LOCK_EX, 1, zlib.crc32(name.encode()))
            waited(time.perf_counter() - begin)
        yield
