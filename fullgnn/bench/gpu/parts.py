"""The three parts of the benchmark: which jobs, in which order, and how their time is shared."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullgnn.bench.gpu import kernel_tests
from fullgnn.bench.gpu.budget import Budget
from fullgnn.bench.gpu.compile_job import cases as compile_cases
from fullgnn.bench.gpu.record import NOT_MEASURED, Record
from fullgnn.bench.gpu.supervise import Supervisor
from fullgnn.bench.gpu.sweep import WIDTHS as SWEPT
from fullgnn.bench.gpu.tunables import tuning_text
from fullgnn.bench.gpu.worker import Task

TUNING_FILE = "tuning.yaml"

_MOST_WORKERS = 16  # each holds a context of about half a GB on the GPU
_RATES_MOST_S = 40.0
_COMPILE_SHARE, _COMPILE_MOST_S = 0.2, 100.0
_FIRST_GRAPH_SHARE = 0.36  # of what is left then; the others share the rest
_HITS_S = 70.0
_WHOLE_S = 120.0

Jobs = dict[str, Task]


@dataclass(frozen=True)
class Part:
    """What a part is given."""

    supervisor: Supervisor
    budget: Budget
    record: Record
    scratch: Path
    toy: bool
    graphs: list[str]
    scale: float | None

    def task(self, module: str, seconds: float, **arguments: Any) -> Task:
        return Task(f"fullgnn.bench.gpu.{module}", seconds, self.toy, arguments)


def run_checks(part: Part) -> None:
    """NCCL, several ranks and the kernels' tests side by side, then compute-sanitizer."""
    left, names = part.budget.left, ["collectives", "kernel_tests", "ranks"]
    if part.toy:  # one process: starting many takes longer than what they do
        part.supervisor.run({"checks": part.task("several", left, modules=names)})
        return
    tools = kernel_tests.tools()
    if not tools:
        part.supervisor.missing("compute-sanitizer", "it is not on the PATH")
    jobs = {name: part.task(name, left) for name in names}
    jobs |= {tool: part.task("kernel_tests", left, tool=tool) for tool in tools}
    part.supervisor.run(jobs, parallel=min(len(names), _num_workers(part.toy)))


def run_products(part: Part) -> None:
    """Rates, then everything compiled at once, then one graph after the other, with the GPU to itself; ncu last."""
    if part.toy:
        modules = ["rates", "product"]
        own: dict[str, Any] = {"graph": part.graphs[0], "scale": part.scale, "scratch": str(part.scratch), "rates": []}
        part.supervisor.run({"toy": part.task("several", part.budget.left, modules=modules, **own)})
        part.record.put(["hits"], {"reason": NOT_MEASURED})
        return
    part.supervisor.run({"rates": part.task("rates", min(_RATES_MOST_S, part.budget.left))})
    seconds = part.budget.part(_COMPILE_SHARE, most_s=_COMPILE_MOST_S).seconds
    swept = [width for name in part.graphs for width in SWEPT[name]]
    cases = compile_cases(swept)
    part.supervisor.run(_spread(part, "compile", "compile_job", cases, seconds), parallel=_num_workers(part.toy))
    rates = part.record.tree.get("rates", {}).get("gather", [])
    _each_graph(part, "product", _HITS_S, rates=rates)
    name = part.graphs[0]
    scale = part.record.tree.get("graphs", {}).get(name, {}).get("scale", 0.1)
    part.supervisor.run({"hits": part.task("hits", part.budget.left, graph=name, scale=scale)})


def run_epochs(part: Part) -> None:
    """One graph after the other, then what the whole commands say."""
    _each_graph(part, "epoch_job", 0.0 if part.toy else min(_WHOLE_S, 0.25 * part.budget.left))
    graphs = part.record.tree.get("graphs", {})
    scales = {name: graph["scale"] for name, graph in graphs.items() if "scale" in graph}
    part.supervisor.run({"whole": part.task("whole", part.budget.left, scratch=str(part.scratch), scales=scales)})


def tuning_file(tree: dict[str, Any]) -> dict[str, str]:
    """The file of the winners, by name; there is always one, so that whoever names it finds it."""
    return {TUNING_FILE: tuning_text(tree.get("sweep", []), tree.get("gpu", {}).get("name"))}


PARTS: dict[str, Callable[[Part], None]] = {"checks": run_checks, "products": run_products, "epochs": run_epochs}
"""In the order in which they make sense."""

MINUTES = {"checks": 2.5, "products": 9.3, "epochs": 9.3}
"""That each part takes at most."""


def _each_graph(part: Part, module: str, reserved_s: float, **arguments: Any) -> None:
    for turn, name in enumerate(part.graphs):
        remaining = len(part.graphs) - turn
        share = 1.0 if remaining == 1 else max(_FIRST_GRAPH_SHARE if turn == 0 else 0.0, 1 / remaining)
        seconds = part.budget.part(share, reserved_s=reserved_s).seconds
        own = {"graph": name, "scale": part.scale, "scratch": str(part.scratch), **arguments}
        part.supervisor.run({name: part.task(module, seconds, **own)})


def _spread(part: Part, name: str, module: str, cases: Iterable[Any], seconds: float) -> Jobs:
    """Jobs that take turns with the cases, as many as may run at a time."""
    cases = list(cases)
    num_workers = max(1, min(len(cases), _num_workers(part.toy)))
    return {
        f"{name} {turn + 1} of {num_workers}": part.task(module, seconds, cases=cases[turn::num_workers])
        for turn in range(num_workers)
    }


def _num_workers(toy: bool) -> int:
    return 1 if toy else max(1, min(len(os.sched_getaffinity(0)) - 1, _MOST_WORKERS))
