"""The sweep of the kernels' constants on a look-alike: one at a time from the defaults, then the gains together.

A row of the sweep is the time of one kernel at one width with some constants changed; ``tunables.py`` says which values
are tried, and which win.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.gpu.made_graph import SCALES, make_graph
from fullgnn.bench.gpu.products import CONTESTANTS, CSR, FLOAT32, PACKED, LookalikeProduct, error_of
from fullgnn.bench.gpu.timing import compile_ahead, is_toy, rotated, time_on_device
from fullgnn.bench.gpu.tunables import Changed, descent, row_of, single_changes
from fullgnn.bench.harness import Cases, Measurement, Outcome, Results
from fullgnn.distributed import World
from fullgnn.graph.lookalikes import generate
from fullgnn.kernels.dense.dense import linear_gradients, matmul
from fullgnn.kernels.spmm import Epilogue, LocalCSR
from fullgnn.kernels.support import tuning
from fullgnn.kernels.support.tuning import tuning_of

DENSE = "a dense layer"

SECTIONS = {CSR.name: "csr", PACKED.name: "panels", DENSE: "dense"}
"""What is timed, in this order, to choose the constants of a section of the tuning."""

_SECONDS, _TOY_S = 0.15, 0.01

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


def run(cfg: BenchConfig, world: World) -> Results:
    """The rows of every kernel at the widths of the graph, as far as time goes."""
    toy, cases = is_toy(world.device), Cases(cfg.limit_s, world.device)
    made = make_graph(cfg, cases.budget, world.device)
    yield Outcome(problem=made.facts)
    small = made.graph if toy else generate(made.shape, SCALES[-1], 0, world.device)
    seconds, most = (_TOY_S, 1) if toy else (_SECONDS, None)
    yield from sweep(made.block, small.csr(small.perm), cases, world, cfg.graph, seconds, most)


def sweep(
    block: LocalCSR, small: LocalCSR, cases: Cases, world: World, graph: str, seconds: float, most: int | None = None
) -> Results:
    """The rows of a graph.

    Args:
        small: a small graph, with which the kernels are compiled beforehand.
        seconds: for the runs of one row.
        most: constants that are changed alone; None: all.
    """

    def launch(kernel: str, width: int, changed: Changed) -> None:
        with _changed(kernel, changed):
            trial(kernel, width, small, world.device).launch(width)

    def time(kernel: str, changed: Changed, case: dict[str, Any], rows: list[Measurement]) -> Measurement:
        with _changed(kernel, changed):
            measured = trial(kernel, case["width"], block, world.device).time(case["width"], world, seconds)
        measured.method.case.update(case)
        measured.details.update(section=SECTIONS[kernel], changed=changed)
        rows.append(measured)
        measured.compare_with(rows[0])
        return measured

    def to_try(single: list[Changed], rows: list[Measurement]) -> Iterator[Changed]:
        """Every single change, and then what their ``rows`` promise."""
        yield from single
        yield from descent([row_of(measured.record()) for measured in rows])

    for width, (kernel, section) in itertools.product(WIDTHS[graph], SECTIONS.items()):
        if kernel != DENSE and CONTESTANTS[kernel].missing(world.device) is not None:
            continue
        single, rows = [{}, *single_changes(section)[:most]], list[Measurement]()
        compile_ahead([partial(launch, kernel, width, changed) for changed in single], world.device)
        for changed in to_try(single, rows):
            what = ", ".join(f"{name}={value}" for name, value in changed.items()) or "defaults"
            case = {"graph": graph, "width": width, "constants": f"{section}: {what}"}
            yield cases.run(kernel, partial(time, kernel, changed, case, rows), case, 1.5, 40)


def trial(kernel: str, width: int, block: LocalCSR, device: torch.device) -> "LookalikeProduct | DenseLayer":
    """What is timed, with the constants of this moment."""
    if kernel != DENSE:
        return LookalikeProduct(CONTESTANTS[kernel], block, device)
    return DenseLayer(block.num_rows, DEPTHS.get(width, width), width, device)


@contextmanager
def _changed(kernel: str, changed: Changed) -> Iterator[None]:
    """Inside, the constants of ``kernel`` are ``changed``, the others the defaults, whatever file this GPU has."""
    tuning.use(tuning_of({SECTIONS[kernel]: changed}))
    try:
        yield
    finally:
        tuning.use(None)


class DenseLayer:
    """The gradients of a dense layer relu(X W + b), whose kernels have constants; cuBLAS computes the layer itself.

    Args:
        num_rows, depth, width: X is (num_rows, depth), and W (depth, width).
    """

    def __init__(self, num_rows: int, depth: int, width: int, device: torch.device):
        self._inputs = rotated(num_rows, depth, device)
        self._gradient = rotated(num_rows, width, device, seed=1)[0]
        weight = torch.randn(depth, width, device=device) / depth**0.5
        self._output = matmul(self._inputs[0], weight, Epilogue(None, torch.randn(width, device=device), relu=True))
        x, g = self._inputs[0].double(), torch.where(self._output > 0, self._gradient, 0).double()
        self._exact, self._magnitude = x.t() @ g, x.abs().t() @ g.abs()

    def run(self, x: Tensor) -> Tensor:
        """X^T G'."""
        return linear_gradients(x, self._gradient, self._output, 1.0, keep_masked=True)[0]

    def launch(self, width: int) -> Tensor:
        """X^T G' of the first input."""
        return self.run(self._inputs[0])

    def time(self, width: int, world: World, seconds: float) -> Measurement:
        """The times, and in the details whether the gradient is ``correct``."""
        error = error_of(self.launch(width), self._exact, self._magnitude)
        measured = time_on_device(DENSE, self.run, self._inputs, world, seconds)
        measured.details["correct"] = error <= FLOAT32
        return measured
