"""A matrix in two parts: groups of columns for tensor cores (``tiles.py``), and the other edges in rows.

on a GPU    panels on tensor cores (``_planes_gpu.py``), then the rows (``triton_csr.py``), which add to the panels'
            sums and apply the epilogue. A panel with many groups is cut into parts, whose sums are added in order.
on a CPU    the same split: groups as small dense products, then the rows (``blocked.py``). It shows what a GPU would
            do (threshold, coverage, planes); ``kernel=blocked`` is faster.

For tensor cores, float32 X is split once per product into three bfloat16 planes, X = hi + mid + lo, of 8 bits of the 24
each. That is exact, so that only the order of the sums differs from a float32 product. Numbers below 2^-103 may lose
bits below 2^-126.

A chain of products on tensor cores, which may truncate sums, is only a few groups long. Chains are added in float32; a
part of a panel has few chains, and the sums of a panel's parts are added as csr adds those of a row's
parts (``panel_plan.py``).

On a GPU the planes take 6 bytes a number and are freed after the product.

X is multiplied by all entries of a group, also by those that are 0, and 0 times infinity is NaN: an infinity
or NaN in a row of X becomes NaN in its column of all rows of the panels that gather the row, and is never hidden.

All sums are float32. Tensor cores get no float64 and no weighted edges: these edges all go to the rows.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.kernels.spmm._panels_cpu import multiply_on_cpu
from fullgnn.kernels.spmm.base import BlockKernel, Epilogue, LocalCSR
from fullgnn.kernels.spmm.blocked import BlockedCSR
from fullgnn.kernels.spmm.panel_plan import PanelPlan
from fullgnn.kernels.spmm.reading import check_supported
from fullgnn.kernels.spmm.tiles import Panels
from fullgnn.kernels.spmm.triton_csr import TritonCSR
from fullgnn.kernels.support import gpu

Split = Callable[[LocalCSR], tuple[Panels, LocalCSR]]


class PanelKernel(BlockKernel):
    """The common part of ``Tile32`` and ``Packed``: everything but the choice of the edges for tensor cores."""

    def __init__(self, name: str, split: Split):
        self._name, self._split = name, split

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "PanelMatrix":
        device = adj.indices.device
        self.name_for(device, dtype)
        panels = None
        if adj.nnz and adj.values is None and dtype == torch.float32:
            panels, adj = self._split(adj)
        return PanelMatrix(panels, adj, dtype)

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        if not BlockedCSR.supports(device, dtype):
            check_supported(self._name, device, dtype)
        return self._name


class PanelMatrix:
    """One block, split into panels and rows."""

    def __init__(self, panels: Panels | None, rest: LocalCSR, dtype: torch.dtype):
        on_gpu = gpu.runs_triton(rest.indices.device)
        self.panels = panels if panels is not None and panels.num_groups else None
        rows: TritonCSR | BlockedCSR = TritonCSR() if on_gpu else BlockedCSR()
        self.rest_nnz, self._rest = rest.nnz, rows.prepare(rest, dtype)
        self._plan = PanelPlan(self.panels) if self.panels is not None and on_gpu else None

    def multiply(self, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
        """``Kernel.spmm``."""
        if self.panels is not None:
            if self._plan is not None:
                self._plan.multiply(x, out, accumulate)
            else:
                multiply_on_cpu(self.panels, x, out, accumulate)
            accumulate = True
        if self.rest_nnz or not accumulate or not epilogue.is_empty:
            self._rest.multiply(x, out, accumulate, epilogue)

    def tensors(self) -> list[Tensor]:
        held = self._rest.tensors()
        held += [] if self.panels is None else self.panels.tensors()
        return held + ([] if self._plan is None else self._plan.tensors())
