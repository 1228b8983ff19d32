"""The products of one graph: every kernel at every width, then the sweep of the kernels' constants."""

from functools import partial

import torch

from fullgnn.bench.gpu.contestants import BASELINE, FIRST, VARIANTS, Contestant
from fullgnn.bench.gpu.lookalikes import density_shares, local_csr
from fullgnn.bench.gpu.made_graph import MadeGraph
from fullgnn.bench.gpu.product import Products
from fullgnn.bench.gpu.random_graph import RandomGraph
from fullgnn.bench.gpu.sweep import WIDTHS as SWEPT
from fullgnn.bench.gpu.sweep import Sweep
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels.spmm import LocalCSR

WIDTHS = (128, 64, 47, 41, 8)
TOY_WIDTHS = (8,)
_PRODUCT_S, _SWEEP_S = 0.25, 0.15


def run(task: Task, report: Report) -> None:
    """Arguments of the task: those of ``MadeGraph``, and ``rates`` of gathered rows."""
    _ProductJob(task, report).run()


class _ProductJob:
    def __init__(self, task: Task, report: Report):
        self._task, self._report, self._device = task, report, task.device
        self._graph = MadeGraph(task, report, self._prepare_all)

    def run(self) -> None:
        made = self._graph.make()
        if made is None:
            return
        graph, csr, _ = made
        products = Products(local_csr(csr), self._task.arguments["rates"], self._device)
        shape = self._graph.shape
        widths = TOY_WIDTHS if self._task.toy else WIDTHS
        headline = [width for width in widths if width in (shape.num_classes, shape.hidden)] or list(widths[:1])
        first = [one for one in FIRST if one.missing(self._device) is None]
        self._time(products, first, headline)
        self._time_shuffled(graph, headline[:1])
        del graph
        self._time(products, first, [width for width in widths if width not in headline])
        products.release()
        sweep = Sweep(self._task, self._report, self._graph.name, products, 0.01 if self._task.toy else _SWEEP_S)
        sweep.run(SWEPT[self._graph.name], num_changes=1 if self._task.toy else None)
        products.release()
        if not self._task.toy:
            self._time_variants(products, [one for one in VARIANTS if one.missing(self._device) is None], headline)

    def _prepare_all(self, block: LocalCSR) -> None:
        for one in FIRST:
            if one.missing(self._device) is None:
                one.make().prepare(block, torch.float32)

    def _time(self, products: Products, contestants: list[Contestant], widths: list[int]) -> None:
        """Every contestant at every width, as an entry each."""
        for width in widths:
            for one in contestants:
                if not self._task.ended_by(one.name):
                    self._report.item(
                        f"{one.name}, width {width}",
                        partial(self._time_one, products, one, width),
                        limit_s=60,
                        predicted_s=0.0 if self._task.toy else 1.5,
                    )

    def _time_variants(self, products: Products, variants: list[Contestant], widths: list[int]) -> None:
        """One after the other, so that only one of them is in memory."""
        for one in variants:
            self._time(products, [one], widths)
            products.release(BASELINE)

    def _time_one(self, products: Products, one: Contestant, width: int) -> None:
        self._graph.add("spmm", products.time(one, width, 0.01 if self._task.toy else _PRODUCT_S))
        for name, setup in products.setup.items():
            self._graph.put("setup", setup, name)

    def _time_shuffled(self, graph: RandomGraph, widths: list[int]) -> None:
        """The baseline on the graph as it came."""

        def once() -> None:
            csr = graph.csr()
            self._graph.put("tile_density_shuffled", density_shares(csr))
            products = Products(local_csr(csr), self._task.arguments["rates"], self._device)
            for width in widths:
                self._graph.add("spmm_shuffled", products.time(BASELINE, width, _PRODUCT_S))

        self._report.item("torch on the shuffled graph", once, predicted_s=0.0 if self._task.toy else 3.0)
