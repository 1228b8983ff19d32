"""How a GPU multiplies panels: which groups a program gets, and the arguments of the kernels."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.kernels.spmm.base import NO_EPILOGUE
from fullgnn.kernels.spmm.panel_pieces import MIN_PIECE, max_registers, planes_columns, smallest_piece
from fullgnn.kernels.spmm.reading import Columns, Reading, split_columns, wide
from fullgnn.kernels.spmm.tiles import Panels
from fullgnn.kernels.spmm.triton_csr import Items, split_items, split_levels, sum_levels
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.kernels.support.gpu import vector_unit
from fullgnn.kernels.support.tuning import tuning_for

FEW_SUMS = 256  # one item of csr adds at most this number of sums of parts


class PanelPlan:
    """The groups of ``panels`` as items: whole panels, and parts of those with many groups."""

    def __init__(self, panels: Panels):
        self._panels = panels
        rows, ptr = panels.rows, panels.ptr
        tuning = tuning_for(ptr.device).panels.general
        panel = torch.arange(len(ptr) - 1, dtype=torch.int32, device=ptr.device)
        few = ptr.diff() <= tuning.split_groups
        self._whole = Items(ptr[:-1][few], ptr[1:][few], panel[few], tuning.split_groups)
        self._parts: Items | None = None
        self._sums: list[Items] = []
        if few.all():
            return
        self._parts, first, last = split_items(ptr[:-1][~few], ptr[1:][~few], tuning.part_groups)
        # Row r of a part is row part * rows + r of the parts' sums. The addends of one row of A lie side by side.
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
        begin, end, target = begin[there], (begin + num_parts.repeat_interleave(rows))[there], target[there]
        most = int(num_parts.max())
        if most <= FEW_SUMS:
            self._sums = [Items(begin.int(), end.int(), target.int(), most)]
        else:
            self._sums = split_levels(begin, end, target, FEW_SUMS)

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, mode: str, planes: bool) -> None:
        """Write panels @ x to ``out``, or with ``accumulate`` add it to ``out``.

        Args:
            planes: multiply with ``_planes_gpu.py``, which splits X beforehand; else with ``_panels_gpu.py``.
        """
        launch = _Planes(self._panels, x, mode) if planes else _Rows(self._panels, x, mode)
        if self._parts is not None:  # the longest first
            sums = empty_aligned(len(self._parts.target) * self._panels.rows, out.shape[1], like=out)
            launch(self._parts, sums, False)
            sum_levels(self._sums, self._addends, None, sums, out, accumulate, NO_EPILOGUE)
        if len(self._whole.target):
            launch(self._whole, out, accumulate)

    def tensors(self) -> list[Tensor]:
        held = self._whole.tensors()
        if self._parts is not None:
            held += [*self._parts.tensors(), self._addends, *(one for items in self._sums for one in items.tensors())]
        return held


class _Rows:
    """Launches ``multiply_panels``, which splits the rows of X as it reads them."""

    def __init__(self, panels: Panels, x: Tensor, mode: str):
        self._panels, self._x, self._mode = panels, x, mode

    def __call__(self, items: Items, out: Tensor, accumulate: bool) -> None:
        # Imported here, since it imports Triton, which only GPUs need.
        from fullgnn.kernels.spmm._panels_gpu import multiply_panels

        panels, x, reading = self._panels, self._x, Reading.of(self._x)
        tuning = tuning_for(out.device).panels.at(out.shape[1])
        num_warps = tuning.num_warps * (2 if panels.rows == 128 else 1)
        for columns in split_columns(out.shape[1], smallest_piece(num_warps, x.element_size()), tuning.piece):
            multiply_panels[(len(items.target), columns.count)](
                *_items(items, panels),
                x,
                *_sizes(panels, out, columns),
                reading.column_units,
                reading.stride_units,
                **_constants(panels, out, accumulate),
                PIECE_0=columns.pieces[0],
                PIECE_1=columns.pieces[1],
                PIECE_2=columns.pieces[2],
                ALIGNED=reading.aligned,
                EVEN=columns.end <= reading.columns,
                MODE=self._mode,
                CHAIN=tuning.chain_groups,
                WIDE=wide(x, out),
                num_warps=num_warps,
                num_stages=tuning.num_stages,
            )


class _Planes:
    """Launches ``multiply_planes`` on the planes of X, which are freed after the product."""

    def __init__(self, panels: Panels, x: Tensor, mode: str):
        from fullgnn.kernels.spmm._planes_gpu import split_rows

        self._panels, self._planes = panels, split_rows(x, mode)

    def __call__(self, items: Items, out: Tensor, accumulate: bool) -> None:
        from fullgnn.kernels.spmm._planes_gpu import multiply_planes

        panels, planes = self._panels, self._planes
        tuning = tuning_for(out.device).panels.at(out.shape[1])
        for columns in planes_columns(out.shape[1], panels.rows, tuning):
            multiply_planes[(len(items.target), columns.count)](
                *_items(items, panels),
                planes,
                *_sizes(panels, out, columns),
                planes.stride(1) // MIN_PIECE,
                **_constants(panels, out, accumulate),
                PIECE=columns.total,
                EVEN=columns.end <= planes.stride(1),
                PLANES=planes.shape[1],
                CHAIN=tuning.chain_groups,
                WIDE=wide(planes.flatten(1), out),
                num_warps=tuning.planes_warps,
                num_stages=tuning.planes_stages,
                maxnreg=max_registers(panels.rows, tuning),
            )


def _items(items: Items, panels: Panels) -> tuple[Tensor, ...]:
    return items.begin, items.end, items.target, panels.columns, panels.bits


def _sizes(panels: Panels, out: Tensor, columns: Columns) -> tuple[Any, ...]:
    """The arguments ``out``, num_rows, num_cols, first_column, and, in units, width and out_stride."""
    unit = vector_unit(out, out.stride(0), out.shape[1])
    return out, len(out), panels.num_cols, columns.first // MIN_PIECE, out.shape[1] // unit, out.stride(0) // unit


def _constants(panels: Panels, out: Tensor, accumulate: bool) -> dict[str, Any]:
    """The constants that both kernels take."""
    return {
        "PANEL": panels.rows,
        "OUT_ALIGNED": vector_unit(out, out.stride(0), out.shape[1]),
        "ADJACENT": panels.adjacent,
        "ACCUMULATE": accumulate,
        "INTERPRETED": gpu.interpreting(),
    }
