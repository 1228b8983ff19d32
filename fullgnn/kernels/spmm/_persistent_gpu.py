"""Rows of A @ X on a GPU in one launch, for ``persistent.py``. Importing this module imports Triton.

As many programs as run at one time walk one list of items, each a row or a part of a row, the longest first. Program p
of P takes the tasks p, p + P, p + 2 P ..., so the assignment of sums to programs does not depend on timing. A task is

    1 long item          summed by LANES lanes
    some short items     each summed by SHORT of these lanes

and the lanes of an item take turns on its edges. The bounds of the next task are read before the edges of the current
one, and the first indices of the next task before the sums of the current one are stored. All columns of a program are
one block, or three equal ones, so that everything has one layout, and no thread waits for another between two edges.
"""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl

from fullgnn.kernels.dropout._philox_gpu import DROPOUT_TYPES
from fullgnn.kernels.epilogue._epilogue_gpu import NO_DROPOUT, store_rows
from fullgnn.kernels.spmm._csr_gpu import add_lanes
from fullgnn.kernels.spmm.persistent_passes import lanes_of, max_registers, split_passes
from fullgnn.kernels.spmm.reading import FULL_PIECE
from fullgnn.kernels.support.tuning import PersistentTuning


@triton.jit(
    do_not_specialize=[
        "num_long",
        "num_short",
        "num_rows",
        "first_column",
        "width",
        "readable",
        "x_stride",
        "out_stride",
    ],
)
def walk_rows(
    begin,  # (num_items,) int32: the edges of an item are begin to end; long ones, then short ones
    end,
    target,  # (num_items,) int32: the row of ``out`` to which an item is stored
    indices,  # (nnz,) int32 columns of A
    values,  # (nnz,) of the dtype of ``out``; None: all 1
    x,  # (num_cols, width)
    out,  # (num_rows, width)
    num_long,
    num_short,
    num_rows,
    first_column,  # first column of the first pass; passes, of PIECE or 3 PIECE columns, are the grid's slow axis
    width,  # in units of OUT_ALIGNED, as out_stride is
    readable,  # columns of X that there is memory for, in units of ALIGNED, as x_stride is
    x_stride,
    out_stride,
    scale,  # from here to drop_scale: see store_rows
    bias,
    relu: tl.constexpr,
    node_id,
    epoch,
    seed: tl.int64,
    layer: tl.int64,
    threshold: tl.int64,
    drop_scale: tl.float64,
    ACCUMULATE: tl.constexpr,
    LANES: tl.constexpr,
    SHORT: tl.constexpr,
    PIECE: tl.constexpr,
    THREE: tl.constexpr,  # three pieces instead of one
    STAGES: tl.constexpr,  # stages of the pipeline of edges
    ALIGNED: tl.constexpr,  # elements of X; see ``Reading``
    OUT_ALIGNED: tl.constexpr,
    EVEN: tl.constexpr,  # all columns of the pieces are readable
    WIDE: tl.constexpr,  # offsets pass 2^31
):
    readable *= ALIGNED
    x_stride *= ALIGNED
    width *= OUT_ALIGNED
    out_stride *= OUT_ALIGNED
    num_programs = tl.num_programs(0)
    column = first_column + tl.program_id(1) * (3 * PIECE if THREE else PIECE)
    column = tl.multiple_of(column, 8)
    # The walk of the first stretch returns the number of this program's first task in the second stretch.
    task = _walk(begin, end, target, tl.program_id(0), num_programs, num_long, indices, values, x, out, num_rows,
                 column, width, readable, x_stride, out_stride, scale, bias, relu, node_id, epoch, seed, layer,
                 threshold, drop_scale, ACCUMULATE, LANES, LANES, PIECE, THREE, STAGES, EVEN, WIDE)  # fmt: skip
    _walk(begin + num_long, end + num_long, target + num_long, task, num_programs, num_short, indices, values, x, out,
          num_rows, column, width, readable, x_stride, out_stride, scale, bias, relu, node_id, epoch, seed, layer,
          threshold, drop_scale, ACCUMULATE, LANES, SHORT, PIECE, THREE, STAGES, EVEN, WIDE)  # fmt: skip


@triton.jit
def _walk(
    begin,
    end,
    target,
    task,
    num_programs,
    num_items,
    indices,
    values,
    x,
    out,
    num_rows,
    first_column,
    width,
    readable,
    x_stride,
    out_stride,
    scale,
    bias,
    relu: tl.constexpr,
    node_id,
    epoch,
    seed,
    layer,
    threshold,
    drop_scale,
    ACCUMULATE: tl.constexpr,
    LANES: tl.constexpr,
    EDGES: tl.constexpr,
    PIECE: tl.constexpr,
    THREE: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Sum the tasks ``task``, ``task + num_programs``, ... of ``num_items`` items; EDGES lanes sum one item.

    Returns the number of this program's next task, counted from the end of these tasks.
    """
    ROWS: tl.constexpr = LANES // EDGES
    num_tasks = tl.cdiv(num_items, ROWS)
    lane = tl.arange(0, EDGES)
    first, last = _bounds(begin, end, task, num_items, ROWS)
    source = _source(indices, first, last, lane)
    for now in range(task, num_tasks, num_programs):
        # The bounds of the next task are loaded while this task is summed.
        next_first, next_last = _bounds(begin, end, now + num_programs, num_items, ROWS)
        longest = tl.max(last - first)
        sum_0 = tl.zeros((ROWS, EDGES, PIECE), out.dtype.element_ty)
        if THREE:
            sum_1 = tl.zeros((ROWS, EDGES, PIECE), out.dtype.element_ty)
            sum_2 = tl.zeros((ROWS, EDGES, PIECE), out.dtype.element_ty)
        for done in tl.range(0, longest, EDGES, num_stages=STAGES):
            edge = first[:, None] + (done + lane)[None, :]
            here = edge < last[:, None]
            ahead = _source(indices, first, last, done + EDGES + lane)
            row = x + (source.to(tl.int64) * x_stride if WIDE else source * x_stride)
            value = tl.load(values + edge, mask=here, other=0) if values is not None else None
            sum_0 = _add(sum_0, row, first_column, here, readable, value, EVEN)
            if THREE:
                sum_1 = _add(sum_1, row, first_column + PIECE, here, readable, value, EVEN)
                sum_2 = _add(sum_2, row, first_column + 2 * PIECE, here, readable, value, EVEN)
            source = ahead
        first, last = next_first, next_last
        source = _source(indices, first, last, lane)
        item = now * ROWS + tl.arange(0, ROWS)
        stored = tl.load(target + item, mask=item < num_items, other=num_rows)
        store_rows(add_lanes(sum_0), stored, num_rows, first_column, width, out, out_stride, scale, bias, relu,
                   node_id, epoch, seed, layer, threshold, drop_scale, ACCUMULATE, WIDE, "evict_first")  # fmt: skip
        if THREE:
            store_rows(add_lanes(sum_1), stored, num_rows, first_column + PIECE, width, out, out_stride, scale, bias,
                       relu, node_id, epoch, seed, layer, threshold, drop_scale, ACCUMULATE, WIDE,
                       "evict_first")  # fmt: skip
            store_rows(add_lanes(sum_2), stored, num_rows, first_column + 2 * PIECE, width, out, out_stride, scale,
                       bias, relu, node_id, epoch, seed, layer, threshold, drop_scale, ACCUMULATE, WIDE,
                       "evict_first")  # fmt: skip
    rounds = tl.cdiv(tl.maximum(num_tasks - task, 0), num_programs)
    return task + rounds * num_programs - num_tasks


@triton.jit
def _bounds(begin, end, task, num_items, ROWS: tl.constexpr):
    """The edges of the items of a task: [ROWS] begin and end."""
    item = task * ROWS + tl.arange(0, ROWS)
    there = item < num_items
    return tl.load(begin + item, mask=there, other=0), tl.load(end + item, mask=there, other=0)


@triton.jit
def _source(indices, first, last, place):
    """The rows of X of the [EDGES] edges at ``first + place``. An index is read only once, so it is evicted first."""
    edge = first[:, None] + place[None, :]
    return tl.load(indices + edge, mask=edge < last[:, None], other=0, eviction_policy="evict_first")


@triton.jit
def _add(total, row, first_column, here, readable, value, EVEN: tl.constexpr):
    """``total`` plus, for each lane in ``here``, the columns of its ``row`` of X, times its ``value``."""
    column = first_column + tl.arange(0, total.shape[2])
    within = here[:, :, None] if EVEN else here[:, :, None] & (column < readable)[None, None, :]
    part = tl.load(row[:, :, None] + column[None, None, :], mask=within, other=0, eviction_policy="evict_last")  # of X
    part = part.to(total.dtype)
    return total + (part * value[:, :, None] if value is not None else part)


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """Variants to compile: (kernel, signature, constants, options) of representative calls, all with 16-byte loads.

    Among them are the widths of the four models of the paper, in the strides of ``aligned.empty_aligned``.
    """
    signature = dict.fromkeys(("begin", "end", "target", "indices"), "*i32:16")
    sizes = ("num_long", "num_short", "num_rows", "first_column", "width", "readable")
    signature |= dict.fromkeys((*sizes, "x_stride", "out_stride"), "i32")
    calls = [  # width, stride, dtypes of X and of the output, weighted, bias and dropout, wide
        (128, 128, "fp32", "fp32", False, True, False),
        (100, 104, "fp32", "fp32", False, False, False),
        (64, 64, "fp32", "fp32", False, False, False),
        (41, 48, "fp32", "fp32", False, True, False),
        (8, 8, "fp32", "fp32", False, True, False),
        (41, 48, "fp64", "fp64", True, False, True),
    ]
    tuning = PersistentTuning()
    for width, stride, of_x, of_out, weighted, finished, wide in calls:
        cut = split_passes(width, FULL_PIECE, whole=of_x == "bf16")[-1]
        types = {"x": f"*{of_x}:16", "out": f"*{of_out}:16", "scale": f"*{of_out}:16"}
        constants: dict[str, Any] = dict(PIECE=cut.piece, THREE=cut.three, **lanes_of(tuning, cut.total))
        constants |= dict(EVEN=cut.end <= stride, WIDE=wide, relu=finished, ACCUMULATE=weighted)
        constants |= dict(ALIGNED={"fp32": 4, "bf16": 8, "fp64": 2}[of_x], STAGES=tuning.num_stages)
        constants |= dict(OUT_ALIGNED=1 if width % 4 else {"fp32": 4, "fp64": 2}[of_out])
        for name, used in (("values", weighted), ("bias", finished)):
            if used:
                types[name] = f"*{of_out}:16"
            else:
                constants[name] = None
        dropout: dict[str, Any] = dict(DROPOUT_TYPES)
        if not finished:
            del dropout["node_id"], dropout["epoch"]
            constants |= NO_DROPOUT
        options = {"num_warps": tuning.num_warps, "maxnreg": max_registers(tuning, of_out == "fp64")}
        yield walk_rows, signature | types | dropout, constants, options
