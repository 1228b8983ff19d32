"""The parts of the benchmark as lists of items, and how their time is shared.

Each part is a generator of groups of items. The items of a group run side by side, as many as ``parallel`` says; the
next group begins when they have ended, and may use what they have put into the record.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullgnn.bench.gpu.compile_job import cases as compile_cases
from fullgnn.bench.gpu.items import Runner
from fullgnn.bench.gpu.kernel_tests import TOOLS
from fullgnn.bench.gpu.record import NOT_MEASURED
from fullgnn.bench.gpu.sweep import WIDTHS as SWEPT
from fullgnn.bench.gpu.worker import Task

_MOST_PROCESSES = 16  # each holds a context of about half a GB on the GPU
_RATES_MOST_S = 40.0
_COMPILE_SHARE, _COMPILE_MOST_S = 0.2, 100.0
_FIRST_GRAPH_SHARE = 0.36  # of the time that is left then; the others share the rest
_OURS_SHARE = 0.65  # of the time of a graph, for our epochs; the peers have the rest
_HITS_S = 70.0
_WHOLE_S = 120.0


@dataclass(frozen=True)
class Part:
    """What a part is given."""

    runner: Runner  # with the record and the time of the part
    scratch: Path
    toy: bool
    graphs: list[str]
    scale: float | None

    @property
    def parallel(self) -> int:
        """Processes at a time, where they need not have the GPU for themselves."""
        return 1 if self.toy else max(1, min(len(os.sched_getaffinity(0)) - 1, _MOST_PROCESSES))

    def item(self, name: str, module: str, seconds: float | None = None, **arguments: Any) -> Task:
        """One item; ``seconds`` None, and in a toy: all the time that is left."""
        seconds = self.runner.budget.left if seconds is None or self.toy else seconds
        return Task(f"fullgnn.bench.gpu.{module}", seconds, self.toy, arguments, name)

    def graph_items(self, reserved_s: float) -> Iterator[tuple[str, float, dict[str, Any]]]:
        """For each graph: its name, seconds for it, and the arguments of ``MadeGraph``."""
        for turn, name in enumerate(self.graphs):
            remaining = len(self.graphs) - turn
            share = max(_FIRST_GRAPH_SHARE if turn == 0 else 0.0, 1 / remaining)
            seconds = self.runner.budget.part(share, reserved_s).seconds
            yield name, seconds, {"graph": name, "scale": self.scale, "scratch": str(self.scratch)}

    def scales(self) -> dict[str, float]:
        """The scales of the graphs that have been made."""
        graphs = self.runner.record.tree.get("graphs", {})
        return {name: graph["scale"] for name, graph in graphs.items() if "scale" in graph}


Groups = Iterator[list[Task]]


def check_items(part: Part) -> Groups:
    """The tests, then compute-sanitizer over a sample of them."""
    yield [part.item("kernel_tests", "kernel_tests")]
    if part.toy:
        return
    if shutil.which("compute-sanitizer"):
        yield [part.item(tool, "kernel_tests", tool=tool) for tool in TOOLS]
    else:
        part.runner.note("compute-sanitizer", None, "missing", "it is not on the PATH")


def product_items(part: Part) -> Groups:
    """Rates, then everything compiled at once, then one graph after the other, with the GPU to itself; ncu last."""
    yield [part.item("rates", "rates", _RATES_MOST_S)]
    if not part.toy:
        seconds = part.runner.budget.part(_COMPILE_SHARE, most_s=_COMPILE_MOST_S).seconds
        cases = compile_cases([width for name in part.graphs for width in SWEPT[name]])
        count = min(len(cases), part.parallel)
        yield [part.item("compile", "compile_job", seconds, cases=cases[turn::count]) for turn in range(count)]
    for name, seconds, arguments in part.graph_items(_HITS_S):
        rates = part.runner.record.tree.get("rates", {}).get("gather", [])
        yield [part.item(name, "product", seconds, rates=rates, **arguments)]
    if part.toy:
        part.runner.record.put(["hits"], {"reason": NOT_MEASURED})
    else:
        name = part.graphs[0]
        yield [part.item("hits", "hits", graph=name, scale=part.scales().get(name, 0.1))]


def epoch_items(part: Part) -> Groups:
    """One graph after the other, ours and the peers in a process each; then whole tables and plans."""
    for name, seconds, arguments in part.graph_items(
        0.0 if part.toy else min(_WHOLE_S, 0.25 * part.runner.budget.left)
    ):
        yield [part.item(name, "epoch", _OURS_SHARE * seconds, presets="ours", keep=True, **arguments)]
        yield [part.item(name, "epoch", (1 - _OURS_SHARE) * seconds, presets="peers", **arguments)]
    yield [part.item("whole", "whole", scratch=str(part.scratch), scales=part.scales())]


def model_items(part: Part) -> Groups:
    """Models and trainings that the other parts leave out, one after the other."""
    yield [part.item("models", "models", scratch=str(part.scratch))]


def rank_items(part: Part) -> Groups:
    """Jobs of several ranks, one after the other."""
    yield [part.item("ranks", "ranks", scratch=str(part.scratch))]


PARTS: dict[str, Callable[[Part], Groups]] = {
    "checks": check_items,
    "products": product_items,
    "epochs": epoch_items,
    "models": model_items,
    "ranks": rank_items,
}
"""In the order in which they make sense."""

MINUTES = {"checks": 2.5, "products": 9.3, "epochs": 9.3, "models": 8.0, "ranks": 8.0}
"""Time that each part takes at most."""
