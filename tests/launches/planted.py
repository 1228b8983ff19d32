"""Kernels with one fault each, and clean ones, for the tests of this folder. Importing this module imports Triton."""

import triton
import triton.language as tl


@triton.jit
def scale(x, out, num_rows, width, x_stride, out_stride, BLOCK: tl.constexpr, WRITTEN: tl.constexpr):
    """Clean with WRITTEN = width: one program a row, which may read the padding of x; it writes WRITTEN columns."""
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    loaded = tl.load(x + row * x_stride + column, mask=(row < num_rows) & (column < x_stride), other=0)
    tl.store(out + row * out_stride + column, loaded * 2, mask=(row < num_rows) & (column < WRITTEN))


@triton.jit
def total(x, out, count, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    """Clean with ATOMIC; without, all programs write one sum."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = tl.sum(tl.load(x + at, mask=at < count, other=0))
    if ATOMIC:
        tl.atomic_add(out, number)
    else:
        tl.store(out, tl.load(out) + number)


@triton.jit
def shift(x, BLOCK: tl.constexpr, DISTANCE: tl.constexpr):
    """In place. Clean with DISTANCE = 0; else a program reads what the next one writes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at + DISTANCE))


@triton.jit
def scatter(index, out, BLOCK: tl.constexpr):
    """Clean if no number occurs twice in ``index``."""
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.load(index + at), at)


@triton.jit
def reverse(x, out, BLOCK: tl.constexpr, BARRIER: tl.constexpr):
    """Reverse through ``out``. Clean with BARRIER."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))
    if BARRIER:
        tl.debug_barrier()
    tl.store(x + at, tl.load(out + BLOCK - 1 - at))


@triton.jit
def zero_then_set(out, BLOCK: tl.constexpr, BARRIER: tl.constexpr):
    """Write each second element anew. Clean with BARRIER."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, 0)
    if BARRIER:
        tl.debug_barrier()
    tl.store(out + 2 * at, 1, mask=at < BLOCK // 2)


@triton.jit
def from_number(address, out):
    """Read from an address that is no argument."""
    tl.store(out, tl.load(tl.cast(address, tl.pointer_type(tl.int64))))
