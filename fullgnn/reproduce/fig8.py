"""Figure 8: the orders of the whole graph, by the hit rate of the cache that H is read through, and by SpMM time."""

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from omegaconf import MISSING
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.bench.harness import Measurement
from fullgnn.bench.ours import product
from fullgnn.config import build
from fullgnn.config.compose import compose, load_config
from fullgnn.graph import adjacency_operator
from fullgnn.partition.kway import MetisError
from fullgnn.reorder.cache_model import hit_rate
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import Case, cases, order
from fullgnn.reproduce.profiler import l2_hit_rates
from fullgnn.reproduce.result import Bars, Cell, Origin, Result, Row, Series, Value, ratio_bars, speedups
from fullgnn.reproduce.timing import interleaved

BASE, BEST = "none", "best"
MODEL, PROFILER = "hit rate, model", "hit rate, profiler"


@dataclass
class PaperOrders:
    """By order, or ``best``."""

    hit_rate: dict[str, float] = field(default_factory=dict)
    """Per cent."""
    speedup: dict[str, float] = field(default_factory=dict)
    """Of a product, over the original order."""


@dataclass
class Config(TargetConfig):
    orders: list[str] = MISSING
    kernels: list[str] = MISSING
    rounds: int = MISSING
    paper: dict[str, PaperOrders] = field(default_factory=dict)


def run(cfg: Config) -> Result:
    """For each graph a row of times for each kernel, and a row of hit rates of the model."""
    found = cases(cfg, features=False)
    rows: list[Row] = []
    times: dict[str, Any] = {}
    for case in found:
        paper = cfg.paper.get(case.dataset, PaperOrders())
        matrices, missing = _ordered(cfg, case)
        measured = _times(cfg, case, matrices)
        for kernel, label in zip(cfg.kernels, map(functools.partial(_kernel_name, cfg), cfg.kernels)):
            by_order = {name: measured[f"{kernel} {name}"] for name in matrices}
            times |= {f"{case.dataset}, {key}": asdict(one) for key, one in measured.items()}
            rows.append(Row((case.title, f"SpMM, kernel={label}"), _time_cells(by_order, missing, paper)))
        capacity = case.modelled_cache_rows
        modelled: dict[str, Value] = {
            name: 100 * hit_rate(matrix.indptr, matrix.indices, matrix.shape[1], capacity)
            for name, matrix in matrices.items()
        }
        profiled = l2_hit_rates(matrices, case.hidden, cfg.torch_device)
        rows.append(Row((case.title, MODEL), _rate_cells(modelled | missing, "simulated", paper)))
        rows.append(Row((case.title, PROFILER), _rate_cells(profiled | missing, "measured", paper)))
    notes = [
        "SpMM: (A + I) H, all entries 1, H float32 of the hidden layer's width; medians of interleaved rounds.",
        "Model: an LRU cache in sets of 16 rows of H, which holds the share of H that the paper's L2 holds at full "
        "size, read in the order of A's rows (fullgnn/reorder/cache_model.py). Profiler: of all that is read through "
        "the L2, as the paper's rates are; it needs a GPU and ncu.",
        "none: a look-alike's node ids are shuffled, so its own order has no locality; a real graph's may have some.",
        "best: the order with the shortest time or the highest rate. The paper's numbers are read off its text.",
    ]
    return Result(("graph", "of"), (*cfg.orders, BEST), rows, _panels(cfg, rows), found, notes, {"times": times})


def _ordered(cfg: Config, case: Case) -> tuple[dict[str, csr_array], dict[str, Value]]:
    """The pattern of A + I in each order, and why an order is missing."""
    matrices: dict[str, csr_array] = {}
    missing: dict[str, Value] = {}
    for name in cfg.orders:
        try:
            ordered = case.graph.permute(order(case, name, cfg))
        except MetisError as error:
            missing[name] = f"not there: {error}"
            continue
        matrices[name] = adjacency_operator(ordered).matrix
    return matrices, missing


def _times(cfg: Config, case: Case, matrices: dict[str, csr_array]) -> dict[str, Measurement]:
    """By ``<kernel> <order>``, all of them in the same rounds."""
    device = cfg.torch_device
    x = torch.randn(case.graph.num_nodes, case.hidden, generator=torch.Generator().manual_seed(cfg.seed)).to(device)
    steps: dict[str, Callable[[], Tensor]] = {}
    for name, matrix in matrices.items():
        indptr, indices = (torch.from_numpy(array).int().to(device) for array in (matrix.indptr, matrix.indices))
        for kernel in cfg.kernels:
            multiply = product(load_config(compose(f"kernel={kernel}")), indptr, indices)
            steps[f"{kernel} {name}"] = functools.partial(multiply, x)
    return interleaved(steps, device, cfg.rounds)


def _time_cells(times: dict[str, Measurement], missing: dict[str, Value], paper: PaperOrders) -> dict[str, Cell]:
    ms: dict[str, Value] = {name: one.median_ms for name, one in times.items()}
    ms = {**ms, BEST: min(one.median_ms for one in times.values()), **missing}
    cells = {name: Cell(value, unit="ms", paper_ratio=paper.speedup.get(name)) for name, value in ms.items()}
    return speedups(cells, BASE) if BASE in times else cells


def _rate_cells(rates: dict[str, Value], origin: Origin, paper: PaperOrders) -> dict[str, Cell]:
    best = max((rate for rate in map(_number, rates.values()) if rate is not None), default=None)
    return {name: Cell(value, paper.hit_rate.get(name), "%", origin) for name, value in {**rates, BEST: best}.items()}


def _kernel_name(cfg: Config, kernel: str) -> str:
    """``auto`` by the name of the kernel that it takes here."""
    return build(load_config(compose(f"kernel={kernel}")).kernel).name_for(cfg.torch_device, torch.float32)


def _panels(cfg: Config, rows: list[Row]) -> list[Bars]:
    modelled = [row for row in rows if row.labels[1] == MODEL]
    series = [
        Series(name, *([_number(getattr(row.cells[name], key)) for row in modelled] for key in ("ours", "paper")))
        for name in cfg.orders
    ]
    panels = [Bars("hit rate of H (ours: model, paper: profiler)", "%", [row.labels[0] for row in modelled], series)]
    for label in dict.fromkeys(row.labels[1] for row in rows if row.labels[1] not in (MODEL, PROFILER)):
        of_kernel = [row for row in rows if row.labels[1] == label]
        panels.append(ratio_bars(f"{label}: speed-up over the original order", of_kernel, cfg.orders))
    return panels


def _number(value: Value) -> float | None:
    return None if value is None or isinstance(value, str) else float(value)
