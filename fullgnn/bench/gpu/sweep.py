"""The sweep of the kernels' constants: on one graph, one constant at a time from the defaults, then the gains together.

A row of the sweep is the time of one kernel at one width with some constants changed; what is made of the rows is in
``tunables.py``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fullgnn.bench.gpu.check import error_of
from fullgnn.bench.gpu.contestants import CSR, FLOAT32, PACKED, PACKED_PLANES, PERSISTENT, Contestant
from fullgnn.bench.gpu.product import Products
from fullgnn.bench.gpu.timing import measure, rotated
from fullgnn.bench.gpu.tunables import Changed, defaults, descent, single_changes
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels.dense.dense import linear_gradients, matmul
from fullgnn.kernels.spmm import Epilogue
from fullgnn.kernels.support import tuning
from fullgnn.kernels.support.tuning import tuning_of


@dataclass(frozen=True)
class Swept:
    """What is timed to choose constants."""

    section: str  # of the tuning
    one: Contestant | None  # None: the dense operations of a layer
    prefix: str = ""  # of the names of its constants, where kernels share a section
    others: str = ""  # prefix of the names that are another kernel's

    @property
    def kernel(self) -> str:
        return "a dense layer" if self.one is None else self.one.name

    def changes(self) -> list[Changed]:
        """Each of its constants at each of its values."""
        names = [name for name in defaults(self.section) if name.startswith(self.prefix)]
        return single_changes(
            self.section, [name for name in names if not (self.others and name.startswith(self.others))]
        )


SWEPT = [
    Swept("csr", CSR),
    Swept("persistent", PERSISTENT),
    Swept("panels", PACKED, others="planes_"),
    Swept("panels", PACKED_PLANES, prefix="planes_"),
    Swept("dense", None),
]
"""In the order in which they are timed."""

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
        return {"median_ms": times.median_ms, "correct": error <= FLOAT32}


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
            for swept in SWEPT:
                if swept.one is not None and swept.one.missing(self._task.device) is not None:
                    continue
                first = len(self._rows)
                for changed in ({}, *swept.changes()[:num_changes]):
                    self._item(swept, width, changed)
                for changed in descent(swept.section, self._rows[first:]):
                    self._item(swept, width, changed)
            self._dense = None

    def _item(self, swept: Swept, width: int, changed: Changed) -> None:
        what = ", ".join(f"{name}={value}" for name, value in changed.items()) or "defaults"
        if not self._task.ended_by(swept.kernel):
            self._report.item(
                f"sweep {swept.section} ({swept.kernel}), width {width}, {what}",
                partial(self._time, swept, width, changed),
                limit_s=40,
                predicted_s=0.0 if self._task.toy else 1.5,
            )

    def _time(self, swept: Swept, width: int, changed: Changed) -> None:
        with constants(swept.section, changed):
            found = self._timed(swept, width)
        row = {"section": swept.section, "kernel": swept.kernel, "graph": self._graph, "width": width}
        row |= {"changed": changed, "median_ms": found["median_ms"], "correct": found["correct"]}
        self._rows.append(row)
        self._report.add(["sweep"], row)

    def _timed(self, swept: Swept, width: int) -> Timed:
        if swept.one is not None:
            return self._products.time_anew(swept.one, width, self._seconds)
        if self._dense is None or self._dense[0] != width:
            self._products.release()
            layer = DenseLayer(self._products.num_rows, DEPTHS.get(width, width), width, self._task.device)
            self._dense = width, layer
        return self._dense[1].time(self._seconds)
