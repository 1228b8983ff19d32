"""The GPU kernel for CSR rows: each row gathers rows of X, and rows of similar degree are processed together.

    bins          rows with up to 4, 16, 64 and 512 edges; the more edges, the more lanes take turns on one row
    heavy rows    a row of more edges than the lanes of a program may add, 512, is cut into parts; the same kernel adds
                  the sums of the parts in order, again in parts where there are many
    the order     within a bin, and so on the GPU, is that of the rows, so that a reordering keeps its benefit

A 0/1 pattern costs four bytes an edge; the normalisation is in the scales before and after. Nothing is added with
atomics, so a product is the same to the bit every time.

The error does not grow with the length of a row: no lane adds more than ``CHAIN`` numbers one after the other, lanes
are added in groups of at most ``CHAIN``, and the sums of parts are added like the edges. For 4 million equal addends,
the worst case, the error is below 1e-6 of the sum of their magnitudes; one running sum would be off by 1e-2 (Higham,
"Accuracy and Stability of Numerical Algorithms", 2002, section 4.2).

Sources: Yang, Buluc and Owens, "Design principles for sparse matrix multiplication on the GPU", Euro-Par'18, for rows
of X that are read whole and coalesced; Huang et al., "GE-SpMM", SC'20, for several columns per thread. The loop is in
``_csr_gpu.py``.
"""

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fullgnn.errors import ConfigError, PartitionError
from fullgnn.kernels.spmm.base import NO_EPILOGUE, BlockKernel, Epilogue, LocalCSR
from fullgnn.kernels.spmm.reading import (
    CHAIN,
    FULL_PIECE,
    Reading,
    check_supported,
    rounded,
    split_columns,
    wide,
)
from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.kernels.support.gpu import vector_unit
from fullgnn.kernels.support.tuning import CSRTuning, tuning_for
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.epilogue import _epilogue_gpu
    from fullgnn.kernels.spmm import _csr_gpu
else:
    _epilogue_gpu = module_on_use("fullgnn.kernels.epilogue._epilogue_gpu")
    _csr_gpu = module_on_use("fullgnn.kernels.spmm._csr_gpu")

log = logging.getLogger(__name__)

BINS = (4, 16, 64)  # the largest number of edges of a row in each bin; a last bin has longer rows that are not cut
MIN_LANES, MAX_LANES = 16, 128  # of a program
REGISTERS = 96
"""Limit on the registers of a thread where columns come in several pieces and X is float32. Without this limit, ptxas
assigns fewer registers, so that more programs run at a time, and spills a word to memory."""


class TritonCSR(BlockKernel):
    """Compiled product on a GPU; see the head of this file. Sums are float32, or float64 where X is.

    Args:
        mode: ``ieee``; or ``bf16``, which rounds X to bfloat16, reads half the bytes, and is not exact.

    Raises:
        ConfigError: ``mode`` is neither of these.
    """

    def __init__(self, mode: str = "ieee"):
        if mode not in ("ieee", "bf16"):
            raise ConfigError(f"kernel.mode={mode} is not known to kernel=csr: choose one of ieee, bf16")
        if mode == "bf16":
            log.info("kernel.mode=bf16 rounds the dense operand: the run is not exact")
        self.mode = mode

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "RowPlan":
        self.name_for(adj.indices.device, dtype)
        return RowPlan(adj, dtype, rounds=self.mode == "bf16")

    def with_values(self, block: "RowPlan", values: Tensor) -> "RowPlan":
        """The block with other (nnz,) ``values`` at the same places, without waiting for the GPU."""
        plan = copy.copy(block)
        plan.values = values
        return plan

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        check_supported("csr", device, dtype)
        return "csr" if self.mode == "ieee" else f"csr {self.mode}"


@dataclass(frozen=True, eq=False)
class Items:
    """Stretches of at most ``most`` edges, whose sums are rows of the output."""

    begin: Tensor  # (num_items,) int32
    end: Tensor  # (num_items,) int32
    target: Tensor  # (num_items,) int32
    most: int

    def tensors(self) -> list[Tensor]:
        return [self.begin, self.end, self.target]


class RowPlan:
    """One ``LocalCSR`` with its rows in bins.

    Args:
        rounds: whether X is rounded to bfloat16.
    """

    def __init__(self, adj: LocalCSR, dtype: torch.dtype, rounds: bool = False):
        tuning = tuning_for(adj.indices.device).csr
        if adj.nnz >= 2**31 - 2 * MAX_LANES:  # a lane may read this far past the row
            raise PartitionError(f"a block of the adjacency has {adj.nnz} non-zeros, about 2^31: use more processes")
        self.indices, self.num_rows, self.num_cols, self._rounds = adj.indices, adj.num_rows, adj.num_cols, rounds
        self.values = None if adj.values is None else adj.values.to(dtype)
        part = CHAIN * min(num_lanes(constants, FULL_PIECE) for constants in (tuning.general, *tuning.widths.values()))
        self.bins, self.heavy = rows_in_bins(adj.indptr, (*(most for most in BINS if most < part), part))

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
        """``Kernel.spmm``."""
        assert x.shape == (self.num_cols, out.shape[1]) and len(out) == self.num_rows, (x.shape, out.shape)
        x = rounded(x) if self._rounds else x
        if self.heavy:  # the longest first
            sum_levels(self.heavy, self.indices, self.values, x, out, accumulate, epilogue)
        for items in reversed(self.bins):
            sum_items(items, self.indices, self.values, x, out, accumulate, epilogue)

    def tensors(self) -> list[Tensor]:
        held = [self.indices, *([] if self.values is None else [self.values])]
        return held + [tensor for items in (*self.bins, *self.heavy) for tensor in items.tensors()]


def rows_in_bins(indptr: Tensor, bounds: Sequence[int]) -> tuple[list[Items], list[Items]]:
    """The rows with up to as many edges as each of the ascending ``bounds``, those without edges included; and the
    ``split_levels`` of the rows of more edges, in parts of as many as the last bound."""
    begin, end = indptr[:-1], indptr[1:]
    degree, bins, least = end - begin, [], -1
    for most in bounds:
        rows = ((degree > least) & (degree <= most)).nonzero().squeeze(1)
        bins += [Items(begin[rows], end[rows], rows.int(), most)] if len(rows) else []
        least = most
    rows = (degree > least).nonzero().squeeze(1)
    return bins, split_levels(begin[rows], end[rows], rows, least) if len(rows) else []


def split_items(begin: Tensor, end: Tensor, size: int) -> tuple[Items, Tensor, Tensor]:
    """Cut each of (num_items,) stretches into parts of at most ``size`` edges; the sum of part i goes to row i.

    Returns:
        the parts, numbered consecutively, and two (num_items,) int64: each stretch's first part, and its last part + 1.
    """
    num_parts = -((end - begin) // -size).long()
    last = num_parts.cumsum(0)
    first = last - num_parts
    owner = torch.arange(len(begin), device=begin.device).repeat_interleave(num_parts)
    part = torch.arange(len(owner), device=begin.device)
    part_begin = begin[owner] + (part - first[owner]) * size
    part_end = torch.minimum(part_begin + size, end[owner])
    return Items(part_begin.int(), part_end.int(), part.int(), size), first, last


def split_levels(begin: Tensor, end: Tensor, target: Tensor, size: int) -> list[Items]:
    """The levels of ``sum_levels`` for stretches of any length: all but the last cut into parts of at most ``size``.

    Args:
        begin, end, target: (num_items,), as in ``Items``.
    """
    levels: list[Items] = []
    while not levels or int((end - begin).max()) > size:
        parts, begin, end = split_items(begin, end, size)
        levels.append(parts)
    return [*levels, Items(begin.int(), end.int(), target.int(), int((end - begin).max()))]


def sum_levels(
    levels: list[Items],
    indices: Tensor,
    values: Tensor | None,
    x: Tensor,
    out: Tensor,
    accumulate: bool,
    epilogue: Epilogue,
) -> None:
    """``sum_items`` for stretches of any length: the sums of the parts of one level are the addends of the next."""
    for parts in levels[:-1]:
        sums = empty_aligned(len(parts.target), out.shape[1], like=out)
        sum_items(parts, indices, values, x, sums, False, NO_EPILOGUE)
        indices, values, x = parts.target, None, sums
    sum_items(levels[-1], indices, values, x, out, accumulate, epilogue)


def sum_items(
    items: Items,
    indices: Tensor,
    values: Tensor | None,
    x: Tensor,
    out: Tensor,
    accumulate: bool,
    epilogue: Epilogue,
) -> None:
    """Write, for each item, the sum of the rows ``indices[begin:end]`` of ``x``, weighted by ``values``, to ``out``."""
    width, num_items = out.shape[1], len(items.target)
    assert width == 1 or x.stride(1) == out.stride(1) == 1, (x.stride(), out.stride())
    reading, finish = Reading.of(x), _epilogue_gpu.epilogue_arguments(epilogue)
    unit = vector_unit(out, out.stride(0), width)
    tuning = tuning_for(out.device).csr.at(width)
    for columns in split_columns(width):
        lanes = num_lanes(tuning, columns.total)
        num_edges = min(lanes, power_of_two(2 * items.most - 1))
        num_rows = lanes // num_edges
        _csr_gpu.sum_rows[(-(-num_items // num_rows), columns.count)](
            items.begin,
            items.end,
            items.target,
            indices,
            values,
            x,
            out,
            num_items,
            len(out),
            columns.first,
            width // unit,
            reading.column_units,
            reading.stride_units,
            out.stride(0) // unit,
            *finish,
            ACCUMULATE=accumulate,
            ROWS=num_rows,
            EDGES=num_edges,
            PIECE_0=columns.pieces[0],
            PIECE_1=columns.pieces[1],
            PIECE_2=columns.pieces[2],
            ALIGNED=reading.aligned,
            OUT_ALIGNED=unit,
            EVEN=columns.end <= reading.columns,
            WIDE=wide(x, out),
            maxnreg=REGISTERS if columns.pieces[1] and out.dtype == torch.float32 else None,
            num_warps=power_of_two(2 * -(-lanes * columns.total // tuning.elements_per_warp) - 1),
        )


def num_lanes(tuning: CSRTuning, num_columns: int) -> int:
    """Lanes of a program with sums of ``num_columns`` columns: a power of two."""
    return min(MAX_LANES, max(MIN_LANES, power_of_two(tuning.elements // num_columns)))


def power_of_two(number: int) -> int:
    """The largest power of two that is not above ``number``, and 1 for 0."""
    return 1 << max(0, number.bit_length() - 1)
