"""The sweep of the kernels' constants on a look-alike: one at a time from the defaults, then the gains together.

A row of the sweep is the time of one kernel at one width with some constants changed. ``VALUES`` names values for the
fields of ``kernels/support/tuning.py`` that deserve better ones than half and twice the default. A field that is not
named there is tried by its type, so that a new constant is swept as soon as it exists.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import yaml
from torch import Tensor

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.gpu import products
from fullgnn.bench.harness import Cases, Measurement, Method, Outcome, Results
from fullgnn.bench.problem import SCALES, make_graph
from fullgnn.distributed import World
from fullgnn.graph.lookalikes import generate
from fullgnn.kernels.dense.dense import linear_gradients, matmul
from fullgnn.kernels.spmm import Epilogue, LocalCSR
from fullgnn.kernels.support import tuning
from fullgnn.kernels.support.tuning import Tuning, file_name, tuning_of

TUNING_FILE = "tuning.yaml"

Changed = dict[str, Any]
"""Constants of one kernel that differ from their defaults."""

SweepRow = Mapping[str, Any]
"""One time: ``section``, ``kernel`` (that was timed), ``graph``, ``width``, ``changed``, ``median_ms``, ``correct``."""

VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
    "csr": {},
    "panels": {"planes_stages": (3, 4, 6)},
    "dense": {
        "gradient_stages": (2, 4, 5),
        "gradient_steps": (8, 16),  # more would add too many numbers one after the other
        "gradient_shared_bytes": (),  # the stages are what it bounds
    },
}

GAIN = 0.98
"""What a time must fall to, over that of the defaults, for a constant to be changed: less is noise."""

DENSE = "a dense layer"

SECTIONS = {products.CSR.name: "csr", products.PACKED.name: "panels", DENSE: "dense"}
"""What is timed, in this order, to choose the constants of a section of the tuning."""

_SECONDS = 0.15  # of the runs of a row

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
    toy, cases = products.is_toy(world.device), Cases(cfg.limit_s, world.device)
    made = make_graph(cfg, cases)
    yield Outcome(problem=made.facts)
    small = made.graph if toy else generate(made.shape, SCALES[-1], 0, world.device)
    yield from sweep(made.block, small.csr(small.perm), cases, world, cfg.graph, most=1 if toy else None)


def sweep(block: LocalCSR, small: LocalCSR, cases: Cases, world: World, graph: str, most: int | None = None) -> Results:
    """The rows of a graph.

    Args:
        small: a small graph, with which the kernels are compiled beforehand.
        most: constants that are changed alone; None: all.
    """

    def launch(kernel: str, width: int, changed: Changed) -> None:
        with _changed(kernel, changed):
            trial(kernel, width, small, world.device).launch(width)

    def time(kernel: str, changed: Changed, case: dict[str, Any], rows: list[Measurement]) -> Measurement:
        with _changed(kernel, changed):
            measured = trial(kernel, case["width"], block, world.device).time(case["width"], world, _SECONDS)
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
        if kernel != DENSE and products.CONTESTANTS[kernel].missing(world.device) is not None:
            continue
        single, rows = [{}, *single_changes(section)[:most]], list[Measurement]()
        products.compile_ahead([partial(launch, kernel, width, changed) for changed in single], world.device)
        for changed in to_try(single, rows):
            what = ", ".join(f"{name}={value}" for name, value in changed.items()) or "defaults"
            case = {"graph": graph, "width": width, "constants": f"{section}: {what}"}
            yield cases.run(kernel, partial(time, kernel, changed, case, rows), case, 1.5, 40)


def trial(kernel: str, width: int, block: LocalCSR, device: torch.device) -> "products.LookalikeProduct | DenseLayer":
    """What is timed, with the constants of this moment."""
    if kernel != DENSE:
        return products.LookalikeProduct(products.CONTESTANTS[kernel], block, device)
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
        self._inputs = products.rotated(num_rows, depth, device)
        self._gradient = products.rotated(num_rows, width, device, seed=1)[0]
        weight = torch.randn(depth, width, device=device) / depth**0.5
        self._output = matmul(self._inputs[0], weight, Epilogue(None, torch.randn(width, device=device), relu=True))

    def run(self, x: Tensor) -> Tensor:
        """X^T G'."""
        return linear_gradients(x, self._gradient, self._output, 1.0, keep_masked=True)[0]

    def launch(self, width: int) -> Tensor:
        """X^T G' of the first input."""
        return self.run(self._inputs[0])

    def time(self, width: int, world: World, seconds: float) -> Measurement:
        """The times, and in the details whether the gradient is ``correct``."""
        x, g = self._inputs[0].double(), torch.where(self._output > 0, self._gradient, 0).double()
        error = products.error_of(self.launch(width), x.t() @ g, x.abs().t() @ g.abs())
        method = Method(DENSE, products.KERNEL, self.run)
        measured = products.time_on_device(method, self._inputs, world, seconds)
        measured.details["correct"] = error <= products.FLOAT32
        return measured


def row_of(measurement: Mapping[str, Any]) -> SweepRow:
    """The row of a measurement of op=sweep, as a record has it."""
    about = {**measurement["case"], "kernel": measurement["method"], "median_ms": measurement["median_ms"]}
    return about | {key: measurement["details"][key] for key in ("section", "changed", "correct")}


def single_changes(section: str) -> list[Changed]:
    """Each constant at each of its values that are not the default, the others at their defaults."""
    changes = list[Changed]()
    for name, default in asdict(getattr(Tuning(), section).general).items():
        by_type = (not default,) if isinstance(default, bool) else (default // 2 or default, default * 2)
        changes += [{name: value} for value in VALUES[section].get(name, by_type) if value != default]
    return changes


def ranked(rows: Iterable[SweepRow]) -> list[SweepRow]:
    """The rows that gain, the fastest first, and behind them that of the defaults; none if the defaults do not count.

    A row counts that has a time, which one of an interpreter has not, and a right result.

    Args:
        rows: of one kernel and width on one graph.
    """
    timed = [row for row in rows if row["correct"] and isinstance(row["median_ms"], (int, float))]
    right = sorted((row for row in timed if row["median_ms"] > 0), key=lambda row: row["median_ms"])
    bases = [row for row in right if not row["changed"]]
    return [row for row in right for base in bases if row["median_ms"] <= GAIN * base["median_ms"]] + bases


def descent(rows: Iterable[SweepRow]) -> list[Changed]:
    """What to try after every single change was: the gains of the constants, added one after the other, the largest
    first; each combination once.

    Args:
        rows: of one kernel and width on one graph.
    """
    together = Changed()
    for row in ranked(rows):
        together = {**together, **row["changed"], **together}  # the value of the fastest row holds
    return [dict(list(together.items())[:count]) for count in range(2, len(together) + 1)]


def winners(rows: Iterable[SweepRow]) -> dict[str, dict[str, Any]]:
    """The constants that were fastest, as the tree of a tuning file; what does not gain stays out of it.

    Where a width was swept on several graphs, the first counts. A width that keeps its defaults is there too, beside
    one that does not: the constants of a wider one would hold for it otherwise.
    """
    cases: dict[tuple[str, str, str, int], list[SweepRow]] = defaultdict(list)
    for row in rows:
        cases[row["section"], row["kernel"], row["graph"], row["width"]].append(row)
    tree: dict[str, dict[int, Changed]] = defaultdict(dict)
    for (section, _, _, width), of_case in cases.items():
        if fastest_first := ranked(of_case):
            tree[section].setdefault(width, fastest_first[0]["changed"])
    return {key: {"widths": dict(sorted(widths.items()))} for key, widths in tree.items() if any(widths.values())}


def tuning_text(rows: Iterable[SweepRow], gpu_name: str | None) -> str:
    """The winners as a file that ``tuning.read_tuning`` reads; ``gpu_name`` None: there was no GPU."""
    lines = ["# No GPU has measured anything: the defaults hold."]
    if gpu_name is not None:
        lines = [f"# Constants of the GPU kernels on {gpu_name}, found by ./launch/gpu_bench --part products."]
        lines += [f"# As conf/tuning/{file_name(gpu_name)} they hold on every such GPU."]
    if tree := winners(rows):
        lines.append(yaml.safe_dump(tree, default_flow_style=None, sort_keys=False, width=1000).rstrip())
    return "\n".join(lines) + "\n"
