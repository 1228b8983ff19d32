"""Kernels compiled before anything is timed, on as many cores as there are: what is compiled stays on disk.

Every kernel, at every width and with every change of its constants that the sweep will try, multiplies a small graph
once. Triton compiles for sizes that are multiples of 16 and for others apart, so a little may still have to be compiled
while the products are timed.
"""

from functools import partial
from typing import Any

from fullgnn.bench.gpu.contestants import CONTESTANTS
from fullgnn.bench.gpu.lookalikes import LOOKALIKES, generate, local_csr
from fullgnn.bench.gpu.product import Products
from fullgnn.bench.gpu.sweep import DEPTHS, SPARSE, DenseLayer, constants
from fullgnn.bench.gpu.tunables import sections, single_changes
from fullgnn.bench.gpu.worker import Report, Task

_GRAPH, _SCALE = "reddit-like", 0.02
_DENSE_ROWS = 100_003


def cases(kernels: list[str], widths: tuple[int, ...], swept: list[int]) -> list[list[Any]]:
    """What is compiled, most wanted first: [kernel, width], and [section, width, change] of the sweep."""
    found: list[list[Any]] = [[name, width] for width in widths for name in kernels]
    for width in swept:
        for section in sections():
            found += [[section, width, changed] for changed in [{}, *single_changes(section)]]
    return found


def run(task: Task, report: Report) -> None:
    """Argument of the task: ``cases``, those of this worker."""
    graph = generate(LOOKALIKES[_GRAPH], _SCALE, 0, task.device)
    products = Products(local_csr(graph.csr(graph.perm)), [], task.device)
    dense: dict[int, DenseLayer] = {}

    def multiply(name: str, width: int, changed: dict[str, Any] | None) -> None:
        if changed is None:
            products.run_once(CONTESTANTS[name], width)
            return
        with constants(name, changed):
            if name not in SPARSE:
                if width not in dense:
                    dense[width] = DenseLayer(_DENSE_ROWS, DEPTHS.get(width, width), width, task.device)
                dense[width].time(0.0)
            elif SPARSE[name].missing(task.device) is None:
                products.time_anew(SPARSE[name], width, 0.0)

    for name, width, *rest in task.arguments["cases"]:
        if not task.ended_by(name):
            changed = rest[0] if rest else None
            what = "as it is" if changed is None else ", ".join(f"{key}={value}" for key, value in changed.items())
            report.item(f"{name}, width {width}, {what}", partial(multiply, name, width, changed))
