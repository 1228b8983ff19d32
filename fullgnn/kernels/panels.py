"""A matrix in two parts: groups of columns for tensor cores (``tiles.py``), and the other edges in rows.

On a GPU    panels on tensor cores (``_panels_gpu.py``), then the rows (``triton_csr.py``), which add to what is there
            and end with the epilogue. A panel with many groups is cut into parts, whose sums are added in order.
on a CPU    the same split: groups as small dense products, then the rows (``blocked.py``). It is there to look at
            what a GPU would do, threshold, coverage and rounding; ``kernel=blocked`` is faster.

The modes say how float32 X is multiplied:

    bf16x3    X = hi + mid + lo in bfloat16, three products of 8 bits of the 24 each: exact, so that only the order of
              the sums differs from a float32 product. Of numbers below 2^-103, bits below 2^-126 may be lost
    bf16x2    X = hi + lo, two products: relative error near 2^-17; not float32 quality
    bf16      X rounded to bfloat16: half the bytes, relative error near 2^-9, also in the rows
    ieee      float32 products, without tensor cores

Every mode multiplies X by all entries of a group, also by those that are 0, and 0 times infinity is NaN: an infinity
or NaN in a row of X becomes NaN in its column of all rows of the panels that gather the row, and is never hidden.

All sums are float32. Float64 is not for tensor cores: all of its edges go to the rows, and so do weighted edges.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn import gpu
from fullgnn.kernels.base import NOTHING, Epilogue, Kernel, LocalCSR
from fullgnn.kernels.blocked import BlockedCSR
from fullgnn.kernels.reading import Reading, check_mode, check_served, cut_columns, rounded, wide
from fullgnn.kernels.tiles import GROUP, Panels
from fullgnn.kernels.triton_csr import Items, TritonCSR, cut_items, sum_items
from fullgnn.lines import empty_lines

MODES = ("bf16x3", "bf16x2", "bf16", "ieee")
SPLIT_GROUPS = 192  # groups beyond which a panel is cut
PART_GROUPS = 128  # groups of one part: 4,096 rows of X
MIN_PIECE = 16  # columns of X of one product on tensor cores
CPU_GROUPS = 1 << 10  # that the CPU unpacks at one time

Split = Callable[[LocalCSR], tuple[Panels, LocalCSR]]


class PanelKernel:
    """What ``Tile32`` and ``Packed`` share: all but the choice of the edges for tensor cores."""

    def __init__(self, name: str, mode: str, split: Split):
        check_mode(name, mode, MODES)
        self._name, self.mode, self._split = name, mode, split

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "PanelMatrix":
        device = adj.indices.device
        self.name_for(device, dtype)
        rows: Kernel = TritonCSR() if gpu.serves(device) else BlockedCSR()
        panels = None
        if adj.nnz and adj.values is None and dtype == torch.float32:
            panels, adj = self._split(adj)
        return PanelMatrix(panels, rows, adj, dtype, self.mode)

    def spmm(
        self, block: "PanelMatrix", x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NOTHING
    ) -> None:
        if out.numel():
            block.multiply(x, out, accumulate, epilogue)

    def tensors(self, block: "PanelMatrix") -> list[Tensor]:
        return block.tensors()

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        if not BlockedCSR.supports(device, dtype):
            check_served(self._name, device, dtype)
        return f"{self._name} {self.mode}"


class PanelMatrix:
    """One block, split."""

    def __init__(self, panels: Panels | None, rows: Kernel, rest: LocalCSR, dtype: torch.dtype, mode: str):
        self.panels = panels if panels is not None and panels.num_groups else None
        self.rest_nnz, self._mode, self._rows = rest.nnz, mode, rows
        self._rest = rows.prepare(rest, dtype)
        self._schedule = None
        if self.panels is not None and isinstance(rows, TritonCSR):
            self._schedule = _Schedule(self.panels)

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
        """``Kernel.spmm``."""
        if self._mode == "bf16" and x.dtype == torch.float32:
            x = rounded(x)
        if self.panels is not None:
            if self._schedule is not None:
                self._schedule.multiply(x, out, accumulate, self._mode)
            else:
                _multiply_on_cpu(self.panels, x, out, accumulate, self._mode)
            accumulate = True
        if self.rest_nnz or not accumulate or not epilogue.is_nothing:
            self._rows.spmm(self._rest, x.to(out.dtype) if out.device.type == "cpu" else x, out, accumulate, epilogue)

    def tensors(self) -> list[Tensor]:
        held = self._rows.tensors(self._rest)
        held += [] if self.panels is None else self.panels.tensors()
        return held + ([] if self._schedule is None else self._schedule.tensors())


class _Schedule:
    """Which groups one program takes on a GPU."""

    def __init__(self, panels: Panels):
        self._panels = panels
        rows, ptr = panels.rows, panels.ptr
        panel = torch.arange(len(ptr) - 1, dtype=torch.int32, device=ptr.device)
        few = ptr.diff() <= SPLIT_GROUPS
        self._whole = Items(ptr[:-1][few], ptr[1:][few], panel[few], SPLIT_GROUPS)
        self._parts, self._sums = None, None
        if few.all():
            return
        self._parts, first, last = cut_items(ptr[:-1][~few], ptr[1:][~few], PART_GROUPS)
        # Row r of a part is row part * rows + r of the parts' sums. Those of one row of A come side by side.
        num_parts = last - first
        part = self._parts.target.long()
        owner = torch.arange(len(first), device=ptr.device).repeat_interleave(num_parts)
        row = torch.arange(rows, device=ptr.device)
        place = first[owner, None] * rows + row * num_parts[owner, None] + (part - first[owner])[:, None]
        self._addends = torch.empty(len(part) * rows, dtype=torch.int32, device=ptr.device)
        self._addends[place] = (part[:, None] * rows + row).int()
        begin = (first[:, None] * rows + row * num_parts[:, None]).flatten()
        target = (panel[~few].long()[:, None] * rows + row).flatten()
        there = target < panels.num_rows
        end = begin + num_parts.repeat_interleave(rows)
        most = int(num_parts.max())
        self._sums = Items(begin[there].int(), end[there].int(), target[there].int(), most)

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, mode: str) -> None:
        """``out`` becomes panels @ x, or is added to."""
        if self._parts is not None and self._sums is not None:  # the longest first
            sums = empty_lines(len(self._parts.target) * self._panels.rows, out.shape[1], like=out)
            self._launch(self._parts, x, sums, False, mode)
            sum_items(self._sums, self._addends, None, sums, out, accumulate, NOTHING)
        if len(self._whole.target):
            self._launch(self._whole, x, out, accumulate, mode)

    def _launch(self, items: Items, x: Tensor, out: Tensor, accumulate: bool, mode: str) -> None:
        # Here, not above: it imports Triton, which only GPUs need.
        from fullgnn.kernels._panels_gpu import multiply_panels

        panels, reading = self._panels, Reading.of(x)
        for columns in cut_columns(out.shape[1], MIN_PIECE):
            multiply_panels[(len(items.target), columns.count)](
                items.begin,
                items.end,
                items.target,
                panels.columns,
                panels.bits,
                x,
                out,
                len(out),
                panels.num_cols,
                columns.first,
                out.shape[1],
                reading.columns,
                x.stride(0),
                out.stride(0),
                PANEL=panels.rows,
                PIECE_0=columns.pieces[0],
                PIECE_1=columns.pieces[1],
                PIECE_2=columns.pieces[2],
                ALIGNED=reading.aligned,
                EVEN=columns.end <= reading.columns,
                ADJACENT=panels.adjacent,
                MODE=mode,
                WIDE=wide(x, out),
                ACCUMULATE=accumulate,
                INTERPRETED=gpu.interpreting(),
                num_warps=8 if panels.rows == 128 else 4,
                num_stages=3,
            )

    def tensors(self) -> list[Tensor]:
        held = self._whole.tensors()
        if self._parts is not None and self._sums is not None:
            held += [*self._parts.tensors(), *self._sums.tensors(), self._addends]
        return held


def split_planes(x: Tensor, mode: str) -> list[Tensor]:
    """Float32 ``x`` as the addends that ``mode`` multiplies, each of them float32 with the numbers of bfloat16.

    In ``bf16x3`` they are cut off, not rounded: 8 + 8 + 8 bits are the 24 of float32, and no number overflows.
    """
    if mode == "ieee":
        return [x]
    if mode == "bf16x3":
        hi = _cut_off(x)
        mid = _cut_off(x - hi)
        return [hi, mid, (x - hi - mid).bfloat16().float()]
    hi = x.bfloat16().float()
    return [hi, (x - hi).bfloat16().float()] if mode == "bf16x2" else [hi]


def _cut_off(x: Tensor) -> Tensor:
    """Float32 ``x`` without the 16 bits that bfloat16 has no place for."""
    return (x.view(torch.int32) & -(1 << 16)).view(torch.float32)


def _multiply_on_cpu(panels: Panels, x: Tensor, out: Tensor, accumulate: bool, mode: str) -> None:
    """``out`` becomes panels @ x, or is added to: groups unpacked, some at a time, in the order of the panels."""
    num_panels, width = len(panels.ptr) - 1, out.shape[1]
    padded = torch.zeros(panels.num_cols + GROUP, width)  # columns past the last have no entries
    padded[: panels.num_cols] = x
    planes = split_planes(padded, mode)
    panel = torch.arange(num_panels).repeat_interleave(panels.ptr.diff().long())
    sums = torch.zeros(num_panels, panels.rows, width)
    for groups in torch.arange(panels.num_groups).split(CPU_GROUPS):
        stretch = slice(int(groups[0]), int(groups[-1]) + 1)
        pattern = (panels.bits[stretch, :, None] >> torch.arange(GROUP, dtype=torch.int32) & 1).float()
        columns = panels.all_columns(stretch)
        for plane in planes:
            sums.index_add_(0, panel[stretch], torch.bmm(pattern, plane[columns]))
    total = sums.flatten(0, 1)[: panels.num_rows]
    if accumulate:
        out.add_(total)
    else:
        out.copy_(total)
