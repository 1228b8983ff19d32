"""Products of one block by every kernel, prepared once and timed against their error."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.exact import error_of, exact_rows, sample_rows
from fullgnn.bench.gpu.contestants import BASELINE, Contestant
from fullgnn.bench.gpu.rates import rate_at
from fullgnn.bench.gpu.timing import l2_bytes, measure, rotated
from fullgnn.kernels.spmm import Kernel, LocalCSR
from fullgnn.kernels.support.aligned import SECTOR_BYTES
from fullgnn.telemetry.timing import wall_ms


class Products:
    """(A + I) X of one graph. Prepared kernels and inputs are kept until ``release``.

    Args:
        block: the whole graph.
        rates: of gathered rows, see ``rates.rate_at``.
    """

    def __init__(self, block: LocalCSR, rates: list[dict[str, Any]], device: torch.device):
        self._block, self._rates, self._device = block, rates, device
        self._prepared: dict[str, tuple[Kernel, Any]] = {}
        self._width = 0
        self._inputs: list[Tensor] = []
        self._rows = self._expected = self._magnitude = torch.empty(0)
        self.setup: dict[str, dict[str, float]] = {}
        """Seconds of preparing a kernel, and bytes that it holds beside the CSR, by its name."""

    @property
    def num_rows(self) -> int:
        return self._block.num_rows

    def time(self, one: Contestant, width: int, seconds: float, keep: bool = True) -> dict[str, Any]:
        """The entry of the record: times, error and rates of one product.

        Args:
            keep: the prepared kernel for the next call; otherwise the kernel is prepared for this call alone, as it
                must be where the constants of kernels have changed.
        """
        self._take_width(width)
        kernel, prepared = self._prepare(one, keep)
        inputs, out = self._inputs, torch.full((self._block.num_rows, width), torch.nan, device=self._device)
        kernel.spmm(prepared, inputs[0], out, accumulate=False)
        error = error_of(out[self._rows], self._expected, self._magnitude)
        layouts = {"lines": inputs}
        if one == BASELINE and not inputs[0].is_contiguous():  # as its users have it; the better of the two counts
            layouts["contiguous"] = [x.contiguous() for x in inputs]
        times = {
            layout: measure(lambda x: kernel.spmm(prepared, x, out, accumulate=False), xs, self._device, seconds)
            for layout, xs in layouts.items()
        }
        layout = min(times, key=lambda name: times[name].median_ms)
        best = times[layout]
        gathered = self._block.nnz * width * 4 / best.median_ms / 1e6
        row_bytes = inputs[0].stride(0) * 4
        resident = self._block.num_cols * row_bytes <= l2_bytes(self._device)
        sectors = -(-width * 4 // SECTOR_BYTES) * SECTOR_BYTES  # what a row of X is read as
        rate = rate_at(self._rates, sectors, resident)
        return {
            "kernel": one.name,
            "width": width,
            "median_ms": best.median_ms,
            "p20_ms": best.p20_ms,
            "p80_ms": best.p80_ms,
            "runs": best.runs,
            "num_inputs": len(inputs),
            "rows_of_x": layout,
            "row_bytes": row_bytes,
            "error": error,
            "correct": error <= one.tolerance,
            "gathered_gb_s": gathered,
            "x_fits_l2": resident,
            "share_of_gather_rate": None if rate is None else gathered * sectors / (width * 4) / rate,
        }

    def release(self) -> None:
        """Free the inputs and the prepared kernels."""
        self._prepared = {}
        self._width, self._inputs = 0, []
        self._expected = self._magnitude = torch.empty(0)

    def _prepare(self, one: Contestant, keep: bool) -> tuple[Kernel, Any]:
        if keep and one.name in self._prepared:
            return self._prepared[one.name]
        kernel, blocks = one.make(), []
        ms = wall_ms(lambda: blocks.append(kernel.prepare(self._block, torch.float32)), self._device)
        if keep:
            own = {self._block.indptr.data_ptr(), self._block.indices.data_ptr()}
            held = sum(tensor.nbytes for tensor in kernel.tensors(blocks[0]) if tensor.data_ptr() not in own)
            self._prepared[one.name] = kernel, blocks[0]
            self.setup[one.name] = {"setup_s": ms / 1e3, "bytes": held}
        return kernel, blocks[0]

    def _take_width(self, width: int) -> None:
        """Inputs of ``width``, and the exact product of the first on some rows, the longest among them."""
        if self._width == width:
            return
        self._inputs = []
        self._inputs = rotated(self._block.num_cols, width, self._device)
        self._rows = sample_rows(self._block)
        self._expected = exact_rows(self._block, self._inputs[0], self._rows)
        self._magnitude = exact_rows(self._block, self._inputs[0].abs(), self._rows)
        self._width = width
