"""The GPU kernel without values: each row gathers rows of X, and rows of like degree are summed alike.

    bins          rows with up to 4, 16, 64 and more edges; the more edges, the more lanes take turns on one row
    heavy rows    beyond 2,048 edges a row is cut into parts; their sums are added in order by the same kernel
    the order     within a bin, and so on the GPU, is that of the rows: a reordering keeps what it gained

A 0/1 pattern costs four bytes an edge; the normalisation is in the scales before and after. Nothing is added with
atomics, so a product is the same to the bit every time.

Sources: Yang, Buluc and Owens, "Design principles for sparse matrix multiplication on the GPU", Euro-Par'18, for rows
of X that are read whole and coalesced; Huang et al., "GE-SpMM", SC'20, for several columns a thread. The loop is in
``_csr_gpu.py``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.errors import PartitionError
from fullgnn.kernels.base import NOTHING, Epilogue, LocalCSR
from fullgnn.kernels.reading import Reading, check_mode, check_served, cut_columns, rounded, wide
from fullgnn.lines import empty_lines

BINS = (4, 16, 64)  # edges of a row, at most; the last bin has the rest
HEAVY = 2048  # edges beyond which a row is cut
PART = 1024  # edges of one part
ELEMENTS = 4096  # of the sums of one program: 32 registers of each of 128 threads
MIN_LANES, MAX_LANES = 16, 256
ELEMENTS_PER_WARP = 1024


class TritonCSR:
    """Compiled product on a GPU; see the head of this file. Sums are float32, and float64 where X is.

    Args:
        mode: ``ieee``; or ``bf16``, which rounds X to bfloat16, reads half the bytes, and is not exact.
    """

    def __init__(self, mode: str = "ieee"):
        check_mode("csr", mode, ("ieee", "bf16"))
        self.mode = mode

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "RowPlan":
        self.name_for(adj.indices.device, dtype)
        return RowPlan(adj, dtype)

    def spmm(self, block: "RowPlan", x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NOTHING) -> None:
        if out.numel():
            block.multiply(rounded(x) if self.mode == "bf16" else x, out, accumulate, epilogue)

    def tensors(self, block: "RowPlan") -> list[Tensor]:
        return block.tensors()

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        check_served("csr", device, dtype)
        return "csr" if self.mode == "ieee" else f"csr {self.mode}"


@dataclass(frozen=True, eq=False)
class Items:
    """Stretches of edges to add up, each to a row of the output; all with at most ``most`` edges."""

    begin: Tensor  # (num_items,) int32
    end: Tensor  # (num_items,) int32
    target: Tensor  # (num_items,) int32
    most: int

    def tensors(self) -> list[Tensor]:
        return [self.begin, self.end, self.target]


class RowPlan:
    """One ``LocalCSR`` with its rows in bins."""

    def __init__(self, adj: LocalCSR, dtype: torch.dtype):
        if adj.nnz >= 2**31 - 2 * MAX_LANES:  # a lane looks so far past the end of its row
            raise PartitionError(f"a block of the adjacency has {adj.nnz} non-zeros, about 2^31: use more processes")
        self.indices, self.num_rows, self.num_cols = adj.indices, adj.num_rows, adj.num_cols
        self.values = None if adj.values is None else adj.values.to(dtype)
        begin, end = adj.indptr[:-1], adj.indptr[1:]
        degree = end - begin
        self.bins: list[Items] = []
        least = -1  # a row without edges is written too
        for most in (*BINS, HEAVY):
            rows = ((degree > least) & (degree <= most)).nonzero().squeeze(1)
            self.bins += [Items(begin[rows], end[rows], rows.int(), most)] if len(rows) else []
            least = most
        self.parts: Items | None = None
        rows = (degree > HEAVY).nonzero().squeeze(1)
        if len(rows):
            self.parts, first, last = cut_items(begin[rows], end[rows], PART)
            self.whole = Items(first.int(), last.int(), rows.int(), int((last - first).max()))

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
        """``Kernel.spmm``."""
        assert x.shape == (self.num_cols, out.shape[1]) and len(out) == self.num_rows, (x.shape, out.shape)
        if self.parts is not None:  # the longest first
            sums = empty_lines(len(self.parts.target), out.shape[1], like=out)
            sum_items(self.parts, self.indices, self.values, x, sums, False, NOTHING)
            sum_items(self.whole, self.parts.target, None, sums, out, accumulate, epilogue)
        for items in reversed(self.bins):
            sum_items(items, self.indices, self.values, x, out, accumulate, epilogue)

    def tensors(self) -> list[Tensor]:
        held = [self.indices, *(tensor for items in self.bins for tensor in items.tensors())]
        if self.values is not None:
            held.append(self.values)
        if self.parts is not None:
            held += [*self.parts.tensors(), *self.whole.tensors()]
        return held


def cut_items(begin: Tensor, end: Tensor, size: int) -> tuple[Items, Tensor, Tensor]:
    """Parts of at most ``size`` edges of each (num_items,) stretch, numbered through; the sum of part i goes to row i.

    Returns:
        the parts, and the (num_items,) int64 numbers of the first part of each stretch and of the one after its last.
    """
    num_parts = -((end - begin) // -size).long()
    last = num_parts.cumsum(0)
    first = last - num_parts
    owner = torch.arange(len(begin), device=begin.device).repeat_interleave(num_parts)
    part = torch.arange(len(owner), device=begin.device)
    part_begin = begin[owner] + (part - first[owner]) * size
    part_end = torch.minimum(part_begin + size, end[owner])
    return Items(part_begin.int(), part_end.int(), part.int(), size), first, last


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
    # Here, not above: they import Triton, which only GPUs need.
    from fullgnn.kernels._csr_gpu import sum_rows
    from fullgnn.kernels._epilogue_gpu import epilogue_arguments

    width, num_items = out.shape[1], len(items.target)
    assert width == 1 or x.stride(1) == out.stride(1) == 1, (x.stride(), out.stride())
    reading, finish = Reading.of(x), epilogue_arguments(epilogue)
    for columns in cut_columns(width):
        num_lanes = min(MAX_LANES, max(MIN_LANES, _power_of_two(ELEMENTS // columns.total)))
        num_edges = min(num_lanes, _power_of_two(2 * items.most - 1))
        num_rows = num_lanes // num_edges
        sum_rows[(-(-num_items // num_rows), columns.count)](
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
            width,
            reading.columns,
            x.stride(0),
            out.stride(0),
            *finish,
            ACCUMULATE=accumulate,
            ROWS=num_rows,
            EDGES=num_edges,
            PIECE_0=columns.pieces[0],
            PIECE_1=columns.pieces[1],
            PIECE_2=columns.pieces[2],
            ALIGNED=reading.aligned,
            EVEN=columns.end <= reading.columns,
            WIDE=wide(x, out),
            num_warps=_power_of_two(num_lanes * columns.total // ELEMENTS_PER_WARP),
        )


def _power_of_two(number: int) -> int:
    """The largest that is not above ``number``, and 1 for 0."""
    return 1 << max(0, number.bit_length() - 1)
