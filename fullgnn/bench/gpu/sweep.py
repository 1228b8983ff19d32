"""The sweep of the kernels' constants on one graph: one constant at a time from the defaults, then the gains together.

A row of the sweep is the time of one kernel at one width with some constants changed; ``tunables.py`` says which values
are tried, and which win.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.exact import error_of
from fullgnn.bench.gpu.contestants import CONTESTANTS, CSR, FLOAT32, PACKED
from fullgnn.bench.gpu.products import Products
from fullgnn.bench.gpu.timing import measure, rotated
from fullgnn.bench.gpu.tunables import Changed, descent, single_changes
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels.dense.dense import linear_gradients, matmul
from fullgnn.kernels.spmm import Epilogue
from fullgnn.kernels.support import tuning
from fullgnn.kernels.support.tuning import tuning_of

DENSE = "a dense layer"

SECTIONS = {
    CSR.name: "csr",
    PACKED.name: "panels",
    DENSE: "dense",
}
"""What is timed, in this order, to choose the constants of a section of the tuning."""

WIDTHS: dict[str, tuple[int, ...]] = {
    "reddit-like": (128, 41),
    "products-like": (64, 47),
    "proteins-like": (8,),
    "archaea-like": (10,),
    "toy": (8,),
}
"""Each width on the graph whose model has it; 128 on the one with the longest epoch."""

DEPTHS = {128: 602, 41: 128, 64: 100, 47: 64, 8: 128, 10: 128}
"""Columns of what enters the layer that has such a width."""


def sweep(task: Task, report: Report, graph: str, products: Products, seconds: float) -> None:
    """Time the constants of every kernel at the widths of a graph, as far as time goes.

    Args:
        seconds: for the runs of one row.
    """
    trials = Trials(products, products.num_rows, task.device)

    def rows(kernel: str, width: int, tried: list[Changed]) -> list[dict[str, Any]]:
        done: list[dict[str, Any]] = []
        for changed in tried:
            what = ", ".join(f"{name}={value}" for name, value in changed.items()) or "defaults"
            name = f"sweep {SECTIONS[kernel]} ({kernel}), width {width}, {what}"
            once = partial(trials.time, kernel, width, changed, seconds)
            found = report.item(name, once, limit_s=40, predicted_s=1.5)
            if found is not None:
                row = {"section": SECTIONS[kernel], "kernel": kernel, "graph": graph, "width": width}
                row |= {"changed": changed, "median_ms": found["median_ms"], "correct": found["correct"]}
                report.add(["sweep"], row)
                done.append(row)
        return done

    for width in WIDTHS[graph]:
        for kernel, section in SECTIONS.items():
            if kernel == DENSE or CONTESTANTS[kernel].missing(task.device) is None:
                single = rows(kernel, width, [{}, *single_changes(section)[: 1 if task.toy else None]])
                rows(kernel, width, descent(single))


class Trials:
    """Times kernels with constants that differ from the defaults.

    Args:
        products: of a graph.
        dense_rows: number of rows of the dense layer.
    """

    def __init__(self, products: Products, dense_rows: int, device: torch.device):
        self._products, self._dense_rows, self._device = products, dense_rows, device
        self._dense: DenseLayer | None = None

    def time(self, kernel: str, width: int, changed: Changed, seconds: float) -> dict[str, Any]:
        """``median_ms``, and whether the result was ``correct``. The other constants are the defaults, whatever file
        there is for this GPU."""
        tuning.use(tuning_of({SECTIONS[kernel]: changed}))
        try:
            if kernel != DENSE:
                self._dense = None  # its memory is free for the product
                return self._products.time(CONTESTANTS[kernel], width, seconds, keep=False)
            if self._dense is None or self._dense.width != width:
                self._products.release()
                self._dense = DenseLayer(self._dense_rows, DEPTHS.get(width, width), width, self._device)
            return self._dense.time(seconds)
        finally:
            tuning.use(None)


class DenseLayer:
    """The gradients of a dense layer relu(X W + b), whose kernels have constants; cuBLAS computes the layer itself.

    Args:
        num_rows, depth, width: X is (num_rows, depth), and W (depth, width).
    """

    def __init__(self, num_rows: int, depth: int, width: int, device: torch.device):
        self.width, self._device = width, device
        self._inputs = rotated(num_rows, depth, device)
        self._gradient = rotated(num_rows, width, device, seed=1)[0]
        weight = torch.randn(depth, width, device=device) / depth**0.5
        self._output = matmul(self._inputs[0], weight, Epilogue(None, torch.randn(width, device=device), relu=True))
        x, g = self._inputs[0].double(), torch.where(self._output > 0, self._gradient, 0).double()
        self._exact, self._magnitude = x.t() @ g, x.abs().t() @ g.abs()

    def run(self, x: Tensor) -> Tensor:
        """X^T G'."""
        return linear_gradients(x, self._gradient, self._output, 1.0, keep_masked=True)[0]

    def time(self, seconds: float) -> dict[str, Any]:
        """``median_ms``, and whether the gradient is ``correct``."""
        error = error_of(self.run(self._inputs[0]), self._exact, self._magnitude)
        times = measure(self.run, self._inputs, self._device, seconds)
        return {"median_ms": times.median_ms, "correct": error <= FLOAT32}
