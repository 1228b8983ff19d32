"""Compile what the products and the sweep will time, so that time is spent on timing alone.

What Triton compiles stays on disk, so that as many processes as cores compile at a time, before anything is timed.
"""

from functools import partial
from typing import Any

from fullgnn.bench.gpu.contestants import CONTESTANTS, FIRST
from fullgnn.bench.gpu.product import WIDTHS
from fullgnn.bench.gpu.products import Products
from fullgnn.bench.gpu.sweep import DENSE, SECTIONS, Trials
from fullgnn.bench.gpu.tunables import Changed, single_changes
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.graph.lookalikes import LOOKALIKES, generate

_GRAPH, _SCALE = "reddit-like", 0.02
_DENSE_ROWS = 100_003


def cases(swept_widths: list[int]) -> list[list[Any]]:
    """[kernel, width, changed constants], most wanted first; None: all constants are those of this GPU."""
    found: list[list[Any]] = [[one.name, width, None] for width in WIDTHS for one in FIRST]
    for width in swept_widths:
        found += [
            [kernel, width, changed] for kernel, section in SECTIONS.items() for changed in single_changes(section)
        ]
    return found


def run(task: Task, report: Report) -> None:
    """Argument of the task: ``cases``, those of this process."""
    graph = generate(LOOKALIKES[_GRAPH], _SCALE, 0, task.device)
    products = Products(graph.csr(graph.perm), [], task.device)
    trials = Trials(products, _DENSE_ROWS, task.device)

    def compile_case(kernel: str, width: int, changed: Changed | None) -> None:
        if kernel != DENSE and CONTESTANTS[kernel].missing(task.device) is not None:
            return
        if changed is None:
            products.time(CONTESTANTS[kernel], width, 0.0)
        else:
            trials.time(kernel, width, changed, 0.0)

    for kernel, width, changed in task.arguments["cases"]:
        what = "" if changed is None else ", ".join(f", {name}={value}" for name, value in changed.items())
        report.item(f"{kernel}, width {width}{what}", partial(compile_case, kernel, width, changed))
