"""Rows of A @ X on a GPU for a matrix that is multiplied once or twice. Importing this module imports Triton.

One launch walks ``indptr``; nothing is prepared, and the host waits for nothing. One program sums ROWS rows for COLUMNS
columns of X:

    short rows      EDGES lanes take turns on each row, with at most ``CHAIN`` edges a lane
    longer rows     one after the other: all ROWS x EDGES lanes take turns on a row, in stretches of ``CHAIN`` edges a
                    lane, and the sums of the stretches are added with compensation (Kahan, 1965)

So hubs, which a transposed block has, occupy whole programs, and the error of a sum does not grow with its length.
Nothing is added with atomics: a product has the same bits every time.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.epilogue._epilogue_gpu import epilogue_arguments, store_rows
from fullgnn.kernels.epilogue.epilogue import Epilogue
from fullgnn.kernels.spmm._csr_gpu import add_lanes
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.spmm.reading import CHAIN, FULL_PIECE, MIN_PIECE, Reading, wide
from fullgnn.kernels.spmm.triton_csr import num_lanes, power_of_two
from fullgnn.kernels.support.gpu import vector_unit
from fullgnn.kernels.support.tuning import CSRTuning, tuning_for

MAX_CHAIN = tl.constexpr(CHAIN)


def multiply(csr: LocalCSR, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
    """``Kernel.spmm`` for a ``csr`` whose values have the dtype of ``out``."""
    width, num_rows = out.shape[1], csr.num_rows
    assert x.shape == (csr.num_cols, width) and len(out) == num_rows, (x.shape, out.shape)
    assert width == 1 or x.stride(1) == out.stride(1) == 1, (x.stride(), out.stride())
    tuning = tuning_for(out.device).csr.at(width)
    shape = shape_of(num_rows, csr.nnz, width, tuning)
    grid = (-(-num_rows // shape["ROWS"]), -(-width // shape["COLUMNS"]))
    reading, unit = Reading.of(x), vector_unit(out, out.stride(0), width)
    sum_csr_rows[grid](
        csr.indptr,
        csr.indices,
        csr.values,
        x,
        out,
        num_rows,
        width // unit,
        reading.column_units,
        reading.stride_units,
        out.stride(0) // unit,
        *epilogue_arguments(epilogue),
        ACCUMULATE=accumulate,
        ALIGNED=reading.aligned,
        OUT_ALIGNED=unit,
        EVEN=grid[1] * shape["COLUMNS"] <= reading.columns,
        WIDE=wide(x, out),
        num_warps=warps_of(shape, tuning),
        **shape,
    )


def shape_of(num_rows: int, num_edges: int, width: int, tuning: CSRTuning) -> dict[str, int]:
    """The compile-time constants of a program's shape; the lanes of a row are those that its mean number of edges
    needs."""
    columns = min(FULL_PIECE, max(MIN_PIECE, triton.next_power_of_2(width)))
    lanes = num_lanes(tuning, columns)
    edges = min(lanes, triton.next_power_of_2(max(1, -(-num_edges // num_rows))))
    return {"ROWS": lanes // edges, "EDGES": edges, "COLUMNS": columns}


def warps_of(shape: dict[str, int], tuning: CSRTuning) -> int:
    """Warps of a program."""
    elements = shape["ROWS"] * shape["EDGES"] * shape["COLUMNS"]
    return power_of_two(2 * -(-elements // tuning.elements_per_warp) - 1)


@triton.jit(do_not_specialize=["num_rows", "width", "readable", "x_stride", "out_stride"])
def sum_csr_rows(
    indptr,  # (num_rows + 1,) int32
    indices,  # (nnz,) int32 columns of A
    values,  # (nnz,) of the dtype of ``out``; None: all 1
    x,  # (num_cols, width)
    out,  # (num_rows, width)
    num_rows,
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
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
    ALIGNED: tl.constexpr,  # elements of X; see ``Reading``
    OUT_ALIGNED: tl.constexpr,
    EVEN: tl.constexpr,  # all columns of all programs are readable
    WIDE: tl.constexpr,  # offsets pass 2^31
):
    """Write the sum of the rows of ``x`` that each row of A names to ``out``."""
    LANES: tl.constexpr = ROWS * EDGES
    epilogue = (scale, bias, relu, (node_id, epoch, seed, layer, threshold, drop_scale))
    first_row, first_column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    readable *= ALIGNED
    x_stride *= ALIGNED
    width *= OUT_ALIGNED
    out_stride *= OUT_ALIGNED

    lane = tl.arange(0, LANES)
    of_lane = first_row + lane // EDGES
    begin = tl.load(indptr + of_lane, mask=of_lane < num_rows, other=0)
    end = tl.load(indptr + of_lane + 1, mask=of_lane < num_rows, other=0)
    short_end = tl.where(end - begin > MAX_CHAIN * EDGES, begin, end)
    sums = _sum_lanes(indices, values, x, begin + lane % EDGES, short_end, EDGES, x_stride, readable, first_column, out,
                      COLUMNS, EVEN, WIDE)  # fmt: skip
    row = first_row + tl.arange(0, ROWS)
    degree = tl.load(indptr + row + 1, mask=row < num_rows, other=0) - tl.load(indptr + row, mask=row < num_rows,
                                                                               other=0)  # fmt: skip
    row = tl.where((row < num_rows) & (degree <= MAX_CHAIN * EDGES), row, num_rows)  # others are stored below
    of_short = add_lanes(tl.reshape(sums, (ROWS, EDGES, COLUMNS)))
    store_rows(of_short, row, num_rows, first_column, width, out, out_stride, epilogue, ACCUMULATE, WIDE)

    if tl.max(degree) > MAX_CHAIN * EDGES:
        for number in range(0, ROWS):
            long_row = tl.minimum(first_row + number, num_rows - 1)
            start, stop = tl.load(indptr + long_row), tl.load(indptr + long_row + 1)
            if (stop - start > MAX_CHAIN * EDGES) & (first_row + number < num_rows):
                total = tl.zeros((1, COLUMNS), out.dtype.element_ty)
                lost = tl.zeros((1, COLUMNS), out.dtype.element_ty)  # what rounding has added to ``total``
                for first in range(start, stop, MAX_CHAIN * LANES):
                    last = tl.minimum(first + MAX_CHAIN * LANES, stop)
                    sums = _sum_lanes(indices, values, x, first + lane, last, LANES, x_stride, readable, first_column,
                                      out, COLUMNS, EVEN, WIDE)  # fmt: skip
                    added = add_lanes(tl.reshape(sums, (1, LANES, COLUMNS))) - lost
                    raised = total + added
                    lost = (raised - total) - added
                    total = raised
                stored = long_row + tl.arange(0, 1)
                store_rows(total, stored, num_rows, first_column, width, out, out_stride, epilogue, ACCUMULATE, WIDE)


@triton.jit
def _sum_lanes(
    indices,
    values,
    x,
    edge,
    end,
    STEP: tl.constexpr,
    x_stride,
    readable,
    first_column,
    out,
    COLUMNS: tl.constexpr,
    EVEN: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The [LANES, COLUMNS] sums over the edges ``edge``, ``edge + STEP``, ... below ``end`` of each lane."""
    column = first_column + tl.arange(0, COLUMNS)
    sums = tl.zeros((edge.shape[0], COLUMNS), out.dtype.element_ty)
    source = tl.load(indices + edge, mask=edge < end, other=0)
    for _ in range(0, tl.max(end - edge), STEP):
        here = edge < end
        # The next indices are loaded before these rows; otherwise each step would wait twice.
        ahead = tl.load(indices + edge + STEP, mask=edge + STEP < end, other=0)
        offset = source.to(tl.int64) * x_stride if WIDE else source * x_stride
        within = here[:, None] if EVEN else here[:, None] & (column < readable)[None, :]
        part = tl.load(x + offset[:, None] + column[None, :], mask=within, other=0).to(sums.dtype)
        if values is not None:
            part *= tl.load(values + edge, mask=here, other=0)[:, None]
        sums += part
        edge += STEP
        source = ahead
    return sums
