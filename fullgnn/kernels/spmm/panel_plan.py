"""The plan by which a GPU multiplies panels: the groups of each program, and the arguments of the kernels."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fullgnn.kernels.spmm.base import NO_EPILOGUE
from fullgnn.kernels.spmm.reading import Columns, wide
from fullgnn.kernels.spmm.tiles import PANEL, Panels
from fullgnn.kernels.spmm.triton_csr import Items, power_of_two, split_items, split_levels, sum_levels
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.kernels.support.gpu import vector_unit
from fullgnn.kernels.support.tuning import PanelTuning, tuning_for
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.spmm import _planes_gpu
else:
    _planes_gpu = module_on_use("fullgnn.kernels.spmm._planes_gpu")

SPLIT_GROUPS, PART_GROUPS = 96, 64  # panels with more groups are cut into parts; 64 groups read 2,048 rows of X
CHAIN_GROUPS = 4
"""Groups that tensor cores add before their sum is added in float32: at most 8, since tensor cores may truncate."""
REGISTERS = 96
"""Limit on the registers of a thread. Without this limit, ptxas assigns fewer registers, so that more programs run at a
time, and spills words to memory at some widths."""
FEW_SUMS = 256  # one item of csr adds at most this number of sums of parts
UNIT = 16  # columns of X in one product on tensor cores; planes are padded to a multiple of it


class PanelPlan:
    """The groups of ``panels`` as items: whole panels, and parts of those with many groups."""

    def __init__(self, panels: Panels):
        self._panels, ptr = panels, panels.ptr
        panel = torch.arange(len(ptr) - 1, dtype=torch.int32, device=ptr.device)
        few = ptr.diff() <= SPLIT_GROUPS
        self._whole = Items(ptr[:-1][few], ptr[1:][few], panel[few], SPLIT_GROUPS)
        self._parts: Items | None = None
        self.sums: list[Items] = []
        if few.all():
            return
        self._parts, first, last = split_items(ptr[:-1][~few], ptr[1:][~few], PART_GROUPS)
        # Row r of a part is row part * PANEL + r of the parts' sums. The addends of one row of A lie side by side.
        num_parts = last - first
        part = self._parts.target.long()
        owner = torch.arange(len(first), device=ptr.device).repeat_interleave(num_parts)
        row = torch.arange(PANEL, device=ptr.device)
        place = first[owner, None] * PANEL + row * num_parts[owner, None] + (part - first[owner])[:, None]
        self._addends = torch.empty(len(part) * PANEL, dtype=torch.int32, device=ptr.device)
        self._addends[place] = (part[:, None] * PANEL + row).int()
        begin = (first[:, None] * PANEL + row * num_parts[:, None]).flatten()
        target = (panel[~few].long()[:, None] * PANEL + row).flatten()
        there = target < panels.num_rows
        begin, end, target = begin[there], (begin + num_parts.repeat_interleave(PANEL))[there], target[there]
        most = int(num_parts.max())
        if most <= FEW_SUMS:
            self.sums = [Items(begin.int(), end.int(), target.int(), most)]
        else:
            self.sums = split_levels(begin, end, target, FEW_SUMS)

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool) -> None:
        """Write panels @ x to ``out``, or with ``accumulate`` add it to ``out``. The planes of X are freed then."""
        planes = _planes_gpu.split_rows(x)
        if self._parts is not None:  # the longest first
            sums = empty_aligned(len(self._parts.target) * PANEL, out.shape[1], like=out)
            self._launch(self._parts, planes, sums, False)
            sum_levels(self.sums, self._addends, None, sums, out, accumulate, NO_EPILOGUE)
        if len(self._whole.target):
            self._launch(self._whole, planes, out, accumulate)

    def _launch(self, items: Items, planes: Tensor, out: Tensor, accumulate: bool) -> None:
        """Store the panels of ``items`` in ``out``.

        Args:
            planes: (num_cols, 3, columns) bfloat16, from ``split_rows``.
        """
        panels, unit = self._panels, vector_unit(out, out.stride(0), out.shape[1])
        tuning = tuning_for(out.device).panels.at(out.shape[1])
        for columns in planes_columns(out.shape[1], tuning):
            _planes_gpu.multiply_planes[(len(items.target), columns.count)](
                items.begin,
                items.end,
                items.target,
                panels.columns,
                panels.bits,
                planes,
                out,
                len(out),
                panels.num_cols,
                columns.first // UNIT,
                out.shape[1] // unit,
                out.stride(0) // unit,
                planes.stride(1) // UNIT,
                PIECE=columns.total,
                EVEN=columns.end <= planes.stride(1),
                OUT_ALIGNED=unit,
                ADJACENT=panels.adjacent,
                CHAIN=CHAIN_GROUPS,
                WIDE=wide(planes.flatten(1), out),
                ACCUMULATE=accumulate,
                INTERPRETED=gpu.interpreting(),
                num_warps=tuning.planes_warps,
                num_stages=tuning.planes_stages,
                maxnreg=REGISTERS,
            )

    def tensors(self) -> list[Tensor]:
        held = self._whole.tensors()
        if self._parts is not None:
            held += [*self._parts.tensors(), self._addends, *(part for items in self.sums for part in items.tensors())]
        return held


def planes_columns(width: int, tuning: PanelTuning) -> list[Columns]:
    """The columns that programs of ``multiply_planes`` multiply: ``planes_piece`` as often as possible, and one piece,
    a power of two, for the rest. A piece has 16 bytes of 32 rows for every thread at least."""
    full, rest = divmod(width, tuning.planes_piece)
    cuts = [Columns(0, full, (tuning.planes_piece, 0, 0))] if full else []
    smallest = max(UNIT, tuning.planes_warps * 16 // torch.bfloat16.itemsize, power_of_two(2 * rest - 1))
    return cuts + ([Columns(full * tuning.planes_piece, 1, (smallest, 0, 0))] if rest else [])
