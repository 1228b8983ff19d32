"""Operations that numba lacks: bits of a word, and counters that several threads share. Importing this module imports
numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fullgnn.kernels.support.vectors import prefetch_line_at

I1, I32, I64 = (ir.IntType(bits) for bits in (1, 32, 64))


@intrinsic
def count_ones(_, word):
    """The number of ones among the 64 bits of ``word``."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def lowest_one(_, word):
    """The place of the lowest one of ``word``, which is not 0."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.cttz(args[0], I1(1))

    return types.uint64(types.uint64), codegen


@intrinsic
def prefetch_line(_, address):
    """Prefetch the cache line at ``address``. Any address is safe, since a prefetch never faults."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        prefetch_line_at(builder, args[0])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def take_ticket(_, address):
    """Add 1 to the int64 at ``address``, and return what it was: no two threads get the same number."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.atomic_rmw("add", builder.inttoptr(args[0], I64.as_pointer()), I64(1), "seq_cst")

    return types.int64(types.intp), codegen


@intrinsic
def read_shared(_, address):
    """The int64 at ``address``. What another thread wrote before it changed this number is then visible here."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load_atomic(builder.inttoptr(args[0], I64.as_pointer()), "seq_cst", 8)

    return types.int64(types.intp), codegen


@intrinsic
def yield_core(_):
    """Let another thread run on this core, if one waits for it (POSIX ``sched_yield``)."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        name = "sched_yield"
        kind = ir.FunctionType(I32, [])
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), codegen
