"""A matrix in two parts: groups of columns for tensor cores (``tiles.py``), and the other edges in rows.

on a GPU    panels on tensor cores (``_planes_gpu.py``), then the rows (``triton_csr.py``), which add to the panels'
            sums and apply the epilogue. A panel with many groups is cut into parts, whose sums are added in order.
on a CPU    the same split: groups as small dense products, then the rows (``blocked.py``). It shows what a GPU would
            do (threshold, coverage, rounding); ``kernel=blocked`` is faster.

The modes say into which bfloat16 planes float32 X is split for tensor cores, once per product:

    bf16x3    X = hi + mid + lo in bfloat16, three products of 8 bits of the 24 each: exact, so that only the order of
              the sums differs from a float32 product. Numbers below 2^-103 may lose bits below 2^-126
    bf16x2    X = hi + lo, two products: relative error up to 2^-17; not float32 quality
    bf16      X rounded to bfloat16: half the bytes, relative error up to 2^-8, also in the rows

A chain of products on tensor cores, which may truncate sums, is only a few groups long. Chains are added in float32; a
part of a panel has few chains, and the sums of a panel's parts are added as csr adds those of a row's
parts (``panel_plan.py``).

On a GPU the planes take 6 bytes a number in bf16x3 and are freed after the product.

Every mode multiplies X by all entries of a group, also by those that are 0, and 0 times infinity is NaN: an infinity
or NaN in a row of X becomes NaN in its column of all rows of the panels that gather the row, and is never hidden.

All sums are float32. Tensor cores get no float64 and no weighted edges: these edges all go to the rows.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.kernels.spmm._panels_cpu import multiply_on_cpu
from fullgnn.kernels.spmm.base import NO_EPILOGUE, Epilogue, Kernel, LocalCSR
from fullgnn.kernels.spmm.blocked import BlockedCSR
from fullgnn.kernels.spmm.panel_plan import PanelPlan
from fullgnn.kernels.spmm.reading import check_mode, check_supported, rounded
from fullgnn.kernels.spmm.tiles import Panels
from fullgnn.kernels.spmm.triton_csr import TritonCSR
from fullgnn.kernels.support import gpu

MODES = ("bf16x3", "bf16x2", "bf16")

Split = Callable[[LocalCSR], tuple[Panels, LocalCSR]]


class PanelKernel:
    """The common part of ``Tile32`` and ``Packed``: everything but the choice of the edges for tensor cores."""

    def __init__(self, name: str, mode: str, split: Split):
        check_mode(name, mode, MODES)
        self._name, self.mode, self._split = name, mode, split

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "PanelMatrix":
        device = adj.indices.device
        self.name_for(device, dtype)
        rows: Kernel = TritonCSR() if gpu.runs_triton(device) else BlockedCSR()
        panels = None
        if adj.nnz and adj.values is None and dtype == torch.float32:
            panels, adj = self._split(adj)
        return PanelMatrix(panels, rows, adj, dtype, self.mode)

    def spmm(
        self, block: "PanelMatrix", x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE
    ) -> None:
        if out.numel():
            block.multiply(x, out, accumulate, epilogue)

    def tensors(self, block: "PanelMatrix") -> list[Tensor]:
        return block.tensors()

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        if not BlockedCSR.supports(device, dtype):
            check_supported(self._name, device, dtype)
        return f"{self._name} {self.mode}"


class PanelMatrix:
    """One block, split into panels and rows."""

    def __init__(self, panels: Panels | None, rows: Kernel, rest: LocalCSR, dtype: torch.dtype, mode: str):
        self.panels = panels if panels is not None and panels.num_groups else None
        self.rest_nnz, self._mode, self._rows = rest.nnz, mode, rows
        self._rest = rows.prepare(rest, dtype)
        self._plan = None
        if self.panels is not None and isinstance(rows, TritonCSR):
            self._plan = PanelPlan(self.panels)

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
        """``Kernel.spmm``."""
        if self._mode == "bf16" and x.dtype == torch.float32:
            x = rounded(x)
        if self.panels is not None:
            if self._plan is not None:
                self._plan.multiply(x, out, accumulate, self._mode)
            else:
                multiply_on_cpu(self.panels, x, out, accumulate, self._mode)
            accumulate = True
        if self.rest_nnz or not accumulate or not epilogue.is_empty:
            self._rows.spmm(self._rest, x.to(out.dtype) if out.device.type == "cpu" else x, out, accumulate, epilogue)

    def tensors(self) -> list[Tensor]:
        held = self._rows.tensors(self._rest)
        held += [] if self.panels is None else self.panels.tensors()
        return held + ([] if self._plan is None else self._plan.tensors())
