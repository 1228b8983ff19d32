"""The products of one graph: every kernel at every width, then the sweep of the kernels' constants."""

from functools import partial

import torch

from fullgnn.bench.gpu.contestants import BASELINE, FIRST, ROUNDED, Contestant
from fullgnn.bench.gpu.made_graph import MadeGraph
from fullgnn.bench.gpu.products import Products
from fullgnn.bench.gpu.sweep import sweep
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.graph.generate_on_device import RandomGraph
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.spmm.tiles import tile_density

WIDTHS = (128, 64, 47, 41, 8)
TOY_WIDTHS = (8,)
_PRODUCT_S, _SWEEP_S, _TOY_S = 0.25, 0.15, 0.01


def run(task: Task, report: Report) -> None:
    """Arguments of the task: those of ``MadeGraph``, and ``rates`` of gathered rows."""
    device, toy, rates = task.device, task.toy, task.arguments["rates"]
    first = [one for one in FIRST if one.missing(device) is None]
    seconds = _TOY_S if toy else _PRODUCT_S

    def prepare_all(block: LocalCSR) -> None:
        for one in first:
            one.make().prepare(block, torch.float32)

    def time_one(one: Contestant, width: int) -> None:
        made.add("spmm", products.time(one, width, seconds))
        made.put("setup", products.setup)

    def time_all(contestants: list[Contestant], widths: list[int]) -> None:
        for width in widths:
            for one in contestants:
                report.item(f"{one.name}, width {width}", partial(time_one, one, width), predicted_s=1.5)

    def time_shuffled(graph: RandomGraph, width: int) -> None:
        csr = graph.csr()
        made.put("tile_density_shuffled", tile_density(csr.indptr, csr.indices, csr.num_cols))
        made.add("spmm_shuffled", Products(csr, rates, device).time(BASELINE, width, seconds))

    made = MadeGraph(task, report, prepare_all)
    found = made.make()
    if found is None:
        return
    graph, csr, _ = found
    products = Products(csr, rates, device)
    widths = TOY_WIDTHS if toy else WIDTHS
    of_model = [width for width in widths if width in (made.shape.num_classes, made.shape.hidden)] or list(widths[:1])
    time_all(first, of_model)
    shuffled = partial(time_shuffled, graph, of_model[0])
    report.item("torch on the shuffled graph", shuffled, predicted_s=3.0)
    del graph, found, shuffled
    time_all(first, [width for width in widths if width not in of_model])
    products.release()
    sweep(task, report, made.name, products, _TOY_S if toy else _SWEEP_S)
    products.release()
    if not toy and ROUNDED.missing(device) is None:
        time_all([ROUNDED], of_model)
