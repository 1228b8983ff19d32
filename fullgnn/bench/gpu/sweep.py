"""The sweep of the kernels' constants: on one graph, one constant at a time from the defaults, then the gains together.

A row of the sweep is the time of one kernel at one width with some constants changed; what is made of the rows is in
``tunables.py``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from fullgnn.bench.gpu.check import error_of
from fullgnn.bench.gpu.contestants import CSR, FLOAT32, PACKED, PERSISTENT, Contestant
from fullgnn.bench.gpu.product import Products
from fullgnn.bench.gpu.timing import measure, rotated
from fullgnn.bench.gpu.tunables import Changed, descent, sections, single_changes
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels import Epilogue, tuning
from fullgnn.kernels.tuning import tuning_of
from fullgnn.nn.dense import linear_gradients, matmul

SPARSE: dict[str, Contestant] = {"csr": CSR, "panels": PACKED, "persistent": PERSISTENT}
"""By the name of their constants. The constants of every other kernel are those of dense operations."""

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

_DENSE_TOLERANCE = 4e-6

Timed = dict[str, Any]
"""``median_ms`` and whether the result was ``correct``."""


@contextmanager
def constants(section: str, changed: Changed) -> Iterator[None]:
    """The kernels take these constants, and the defaults again afterwards, whatever file there is for this GPU."""
    tuning.use(tuning_of({section: changed}))
    try:
        yield
    finally:
        tuning.use(None)


class DenseLayer:
    """The dense operations of a layer: a product with its epilogue, and the gradients of its activation and weights.

    Args:
        num_rows, depth, width: X is (num_rows, depth), and W (depth, width).
    """

    def __init__(self, num_rows: int, depth: int, width: int, device: torch.device):
        self._device = device
        self._inputs = rotated(num_rows, depth, device)
        self._gradients = rotated(num_rows, width, device, seed=1)[:2]
        self._weight = torch.randn(depth, width, device=device) / depth**0.5
        self._epilogue = Epilogue(None, torch.randn(width, device=device), relu=True)
        self._output = matmul(self._inputs[0], self._weight, self._epilogue)
        x, g = self._inputs[0].double(), torch.where(self._output > 0, self._gradients[0], 0).double()
        self._exact, self._magnitude = x.t() @ g, x.abs().t() @ g.abs()

    def run(self, x: torch.Tensor) -> torch.Tensor:
        """X^T G', after the product."""
        matmul(x, self._weight, self._epilogue)
        return linear_gradients(x, self._gradients[0], self._output, 1.0, keep_masked=True)[0]

    def time(self, seconds: float) -> Timed:
        error = error_of(self.run(self._inputs[0]), self._exact, self._magnitude)
        times = measure(self.run, self._inputs, self._device, seconds)
        return {"median_ms": times.median_ms, "correct": error <= max(FLOAT32, _DENSE_TOLERANCE)}


class Sweep:
    """Times the constants of every kernel at the widths of one graph.

    Args:
        products: of the graph; what they prepare is prepared anew with every change, since constants may shape it.
    """

    def __init__(self, task: Task, report: Report, graph: str, products: Products, seconds: float):
        self._task, self._report, self._graph, self._products = task, report, graph, products
        self._seconds = seconds
        self._rows: list[dict[str, Any]] = []
        self._dense: tuple[int, DenseLayer] | None = None

    def run(self, widths: tuple[int, ...], num_changes: int | None = None) -> None:
        """All rows of these widths, as far as time goes.

        Args:
            num_changes: of each kernel that are tried, for a toy.
        """
        for width in widths:
            for section in sorted(sections(), key=lambda name: name not in SPARSE):  # these share their inputs
                if section in SPARSE and SPARSE[section].missing(self._task.device) is not None:
                    continue
                changes = [dict[str, Any](), *single_changes(section)[:num_changes]]
                for changed in changes:
                    self._item(section, width, changed)
                own = [row for row in self._rows if (row["section"], row["width"]) == (section, width)]
                for changed in descent(section, own):
                    self._item(section, width, changed)
            self._dense = None

    def _item(self, section: str, width: int, changed: Changed) -> None:
        what = ", ".join(f"{name}={value}" for name, value in changed.items()) or "defaults"
        self._report.item(
            f"sweep {section}, width {width}, {what}",
            partial(self._time, section, width, changed),
            limit_s=40,
            predicted_s=0.0 if self._task.toy else 1.5,
        )

    def _time(self, section: str, width: int, changed: Changed) -> None:
        with constants(section, changed):
            found = self._timer(section, width)(self._seconds)
        row = {"section": section, "graph": self._graph, "width": width, "changed": changed}
        row |= {"median_ms": found["median_ms"], "correct": found["correct"]}
        self._rows.append(row)
        self._report.add(["sweep"], row)

    def _timer(self, section: str, width: int) -> Callable[[float], Timed]:
        if section in SPARSE:
            return lambda seconds: self._products.time_anew(SPARSE[section], width, seconds)
        if self._dense is None or self._dense[0] != width:
            self._products.release()
            layer = DenseLayer(self._products.num_rows, DEPTHS.get(width, width), width, self._task.device)
            self._dense = width, layer
        return self._dense[1].time
