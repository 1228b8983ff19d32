"""The rows of ``triton_csr.py`` in one launch: as many programs as run at one time walk one list of rows.

    the list      rows in bins of 2^(b - 1) + 1 to 2^b edges, the longest bin first; a bin keeps the order of its rows
    programs      a fixed number for each multiprocessor; program p of P takes the tasks p, p + P, p + 2 P ...
    a task        a long row, or several shorter rows of similar length
    passes        X may be read some columns at a time, so that the columns of a pass fit the L2 cache
    heavy rows    are cut into parts beforehand, as for ``kernel=csr``: one launch for each level of their sums

In ``kernel=csr`` each bin is a launch, at whose end programs wait for the longest row of the bin. The assignment of
tasks is known before the launch and nothing is added with atomics, so a product is the same to the bit every time.
This kernel has not been measured on a GPU; it is an alternative to ``kernel=csr``, and ``kernel=auto`` times both.

Sources: Gupta, Stuart and Owens, "A study of persistent threads style GPU programming for GPGPU workloads",
InPar'12, for persistent programs; Yang, Buluc and Owens (Euro-Par'18) for rows of X that are read whole. The loop is in
``_persistent_gpu.py``.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.errors import ConfigError, PartitionError
from fullgnn.kernels.spmm.base import NO_EPILOGUE, Epilogue, LocalCSR
from fullgnn.kernels.spmm.persistent_passes import lanes_of, max_registers, programs_a_processor, split_passes
from fullgnn.kernels.spmm.reading import (
    CHAIN,
    FULL_PIECE,
    MIN_PIECE,
    Reading,
    check_mode,
    check_supported,
    rounded,
    wide,
)
from fullgnn.kernels.spmm.triton_csr import split_levels
from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.kernels.support.gpu import vector_unit
from fullgnn.kernels.support.tuning import PersistentTuning, tuning_for


class PersistentCSR:
    """Compiled product on a GPU; see the head of this file. Sums are float32, or float64 where X is.

    Args:
        mode: ``ieee``; or ``bf16``, which rounds X to bfloat16, reads half the bytes, and is not exact.
        columns_a_pass: columns of X in a pass, a multiple of 8 up to 128; None: the number in the tuning of the GPU.
    """

    def __init__(self, mode: str = "ieee", columns_a_pass: int | None = None):
        check_mode("persistent", mode, ("ieee", "bf16"))
        if columns_a_pass is not None and columns_a_pass not in range(MIN_PIECE, FULL_PIECE + 1, MIN_PIECE):
            raise ConfigError(
                f"kernel.columns_a_pass={columns_a_pass} is not possible: choose 8, 16, 24 ... 128, or null"
            )
        self.mode, self.columns_a_pass = mode, columns_a_pass

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "ListPlan":
        self.name_for(adj.indices.device, dtype)
        return ListPlan(adj, dtype)

    def spmm(
        self, block: "ListPlan", x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE
    ) -> None:
        if out.numel():
            x = rounded(x) if self.mode == "bf16" else x
            block.multiply(x, out, accumulate, epilogue, self.columns_a_pass)

    def tensors(self, block: "ListPlan") -> list[Tensor]:
        return block.tensors()

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        check_supported("persistent", device, dtype)
        passes = "" if self.columns_a_pass is None else f" {self.columns_a_pass} columns a pass"
        return ("persistent" if self.mode == "ieee" else f"persistent {self.mode}") + passes


@dataclass(frozen=True, eq=False)
class WorkList:
    """Stretches of edges whose sums are rows of the output: long ones, then short ones."""

    begin: Tensor  # (num_items,) int32
    end: Tensor  # (num_items,) int32
    target: Tensor  # (num_items,) int32
    num_long: int
    num_short: int

    @classmethod
    def of(cls, begin: Tensor, end: Tensor, target: Tensor, tuning: PersistentTuning) -> "WorkList":
        """The (num_items,) stretches in bins of powers of two, the longest first."""
        degree = end - begin
        bins = (2.0 * degree - 1).clamp(min=0.5).log2().floor()  # 2^(b - 1) < degree <= 2^b
        order = torch.sort(bins, descending=True, stable=True).indices
        num_short = int((degree <= min(tuning.short_edges, CHAIN * tuning.short_lanes)).sum())
        begin, end, target = (one[order].int() for one in (begin, end, target))
        return cls(begin, end, target, len(begin) - num_short, num_short)

    def tensors(self) -> list[Tensor]:
        return [self.begin, self.end, self.target]


class ListPlan:
    """One ``LocalCSR`` with the list of its rows."""

    def __init__(self, adj: LocalCSR, dtype: torch.dtype):
        tuning = tuning_for(adj.indices.device).persistent
        everywhere = (tuning.general, *tuning.widths.values())
        if adj.nnz >= 2**31 - 2 * max(one.max_lanes for one in everywhere):  # a lane may read this far past the row
            raise PartitionError(f"a block of the adjacency has {adj.nnz} non-zeros, about 2^31: use more processes")
        self.indices, self.num_rows, self.num_cols = adj.indices, adj.num_rows, adj.num_cols
        self.values = None if adj.values is None else adj.values.to(dtype)
        heavy = min(tuning.general.heavy, CHAIN * min(lanes_of(one, FULL_PIECE)["LANES"] for one in everywhere))
        begin, end = adj.indptr[:-1], adj.indptr[1:]
        rows = (end - begin <= heavy).nonzero().squeeze(1)
        self.rows = WorkList.of(begin[rows], end[rows], rows, tuning.general) if len(rows) else None
        self.levels: list[WorkList] = []
        rows = (end - begin > heavy).nonzero().squeeze(1)
        if len(rows):
            levels = split_levels(begin[rows], end[rows], rows, heavy)
            self.levels = [WorkList.of(level.begin, level.end, level.target, tuning.general) for level in levels]
            self.numbers = torch.arange(len(self.levels[0].target), dtype=torch.int32, device=rows.device)

    def multiply(
        self, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue, columns_a_pass: int | None
    ) -> None:
        """``Kernel.spmm``."""
        assert x.shape == (self.num_cols, out.shape[1]) and len(out) == self.num_rows, (x.shape, out.shape)
        indices, values, addends = self.indices, self.values, x
        for parts in self.levels[:-1]:
            sums = empty_aligned(len(parts.target), out.shape[1], like=out)
            walk(parts, indices, values, addends, sums, False, NO_EPILOGUE, columns_a_pass)
            indices, values, addends = self.numbers, None, sums
        if self.levels:
            walk(self.levels[-1], indices, values, addends, out, accumulate, epilogue, columns_a_pass)
        if self.rows is not None:
            walk(self.rows, self.indices, self.values, x, out, accumulate, epilogue, columns_a_pass)

    def tensors(self) -> list[Tensor]:
        lists = self.levels if self.rows is None else [self.rows, *self.levels]
        held = [self.indices, *([] if self.values is None else [self.values]), *([self.numbers] if self.levels else [])]
        return held + [tensor for work in lists for tensor in work.tensors()]


def walk(
    work: WorkList,
    indices: Tensor,
    values: Tensor | None,
    x: Tensor,
    out: Tensor,
    accumulate: bool,
    epilogue: Epilogue,
    columns_a_pass: int | None,
) -> None:
    """Write, for each item, the sum of the rows ``indices[begin:end]`` of ``x``, weighted by ``values``, to ``out``."""
    # Imported here, since they import Triton, which only GPUs need.
    from fullgnn.kernels.epilogue._epilogue_gpu import epilogue_arguments
    from fullgnn.kernels.spmm._persistent_gpu import walk_rows

    width = out.shape[1]
    assert width == 1 or x.stride(1) == out.stride(1) == 1, (x.stride(), out.stride())
    tuning = tuning_for(out.device).persistent.at(width)
    reading, finish = Reading.of(x), epilogue_arguments(epilogue)
    unit, double = vector_unit(out, out.stride(0), width), out.dtype == torch.float64
    num_programs = _num_processors(out.device) * programs_a_processor(tuning, double)
    for cut in split_passes(width, columns_a_pass or tuning.columns_a_pass or FULL_PIECE, whole=x.element_size() < 4):
        lanes = lanes_of(tuning, cut.total)
        num_tasks = work.num_long + -(-work.num_short * lanes["SHORT"] // lanes["LANES"])
        walk_rows[(min(num_programs, num_tasks), cut.count)](
            work.begin,
            work.end,
            work.target,
            indices,
            values,
            x,
            out,
            work.num_long,
            work.num_short,
            len(out),
            cut.first,
            width // unit,
            reading.column_units,
            reading.stride_units,
            out.stride(0) // unit,
            *finish,
            ACCUMULATE=accumulate,
            **lanes,
            PIECE=cut.piece,
            THREE=cut.three,
            STAGES=tuning.num_stages,
            ALIGNED=reading.aligned,
            OUT_ALIGNED=unit,
            EVEN=cut.end <= reading.columns,
            WIDE=wide(x, out),
            num_warps=tuning.num_warps,
            maxnreg=max_registers(tuning, double),
        )


@functools.cache
def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
