"""Kernels compiled before anything is timed, on as many cores as there are: what is compiled stays on disk.

Every kernel, at every width and with every change of its constants that the sweep will try, multiplies a small graph
once. Triton compiles for sizes that are multiples of 16 and for others apart, so a little may still have to be compiled
while the products are timed.
"""

from functools import partial
from typing import Any

from fullgnn.bench.gpu.contestants import CONTESTANTS, Contestant
from fullgnn.bench.gpu.lookalikes import LOOKALIKES, generate, local_csr
from fullgnn.bench.gpu.product import Products
from fullgnn.bench.gpu.sweep import DEPTHS, SWEPT, DenseLayer, Swept, constants
from fullgnn.bench.gpu.tunables import Changed
from fullgnn.bench.gpu.worker import Report, Task

_GRAPH, _SCALE = "reddit-like", 0.02
_DENSE_ROWS = 100_003


def cases(kernels: list[str], widths: tuple[int, ...], swept_widths: list[int]) -> list[list[Any]]:
    """What is compiled, most wanted first: [kernel, width], and [number in ``SWEPT``, width, change] of the sweep."""
    found: list[list[Any]] = [[name, width] for width in widths for name in kernels]
    for width in swept_widths:
        for number, swept in enumerate(SWEPT):
            found += [[number, width, changed] for changed in swept.changes()]
    return found


def run(task: Task, report: Report) -> None:
    """Argument of the task: ``cases``, those of this worker."""
    graph = generate(LOOKALIKES[_GRAPH], _SCALE, 0, task.device)
    products = Products(local_csr(graph.csr(graph.perm)), [], task.device)
    dense: dict[int, DenseLayer] = {}

    def multiply(one: Contestant, width: int) -> None:
        if one.missing(task.device) is None:
            products.run_once(one, width)

    def try_constants(swept: Swept, width: int, changed: Changed) -> None:
        with constants(swept.section, changed):
            if swept.one is None:
                if width not in dense:
                    dense[width] = DenseLayer(_DENSE_ROWS, DEPTHS.get(width, width), width, task.device)
                dense[width].time(0.0)
            elif swept.one.missing(task.device) is None:
                products.time_anew(swept.one, width, 0.0)

    for what, width, *rest in task.arguments["cases"]:
        if not rest:
            if not task.ended_by(what):
                report.item(f"{what}, width {width}", partial(multiply, CONTESTANTS[what], width))
            continue
        ((name, value),) = rest[0].items()
        report.item(
            f"{SWEPT[what].kernel}, width {width}, {name}={value}", partial(try_constants, SWEPT[what], width, rest[0])
        )
