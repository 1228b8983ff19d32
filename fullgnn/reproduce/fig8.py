"""Figure 8: orders of the whole graph, by the hit rate of the cache that holds rows of H, and by SpMM time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from omegaconf import MISSING
from scipy.sparse import csr_array

from fullgnn.errors import UnsupportedError
from fullgnn.reorder.cache_model import hit_rate
from fullgnn.reproduce import jobs
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.products import kernel_label, l2_hit_rates, time_products
from fullgnn.reproduce.result import Cell, Result, Row, Value, bars, cells, number, speedups, with_label

BASE, BEST = "none", "best"
MODEL, PROFILER = "hit rate, model", "hit rate, profiler"


@dataclass
class Config(TargetConfig):
    orders: list[str] = MISSING
    kernels: list[str] = MISSING
    rounds: int = MISSING
    paper: dict[str, Any] = field(default_factory=dict)
    """``hit_rate`` in per cent and ``speedup`` of a product by dataset, and by order or ``best``."""


def run(cfg: Config) -> Result:
    """For each graph a row of times for each kernel, and a row of hit rates of the model and of the profiler."""
    found, device = cases(cfg, features=False), cfg.torch_device
    labels = {kernel: kernel_label(kernel, device) for kernel in cfg.kernels}
    rows: list[Row] = []
    details: dict[str, Any] = {}
    for case in found:
        paper = cfg.paper.get(case.dataset, {})
        matrices, missing = ordered(cfg, case)
        generator = torch.Generator().manual_seed(cfg.seed)
        x = torch.randn(case.graph.num_nodes, case.hidden, generator=generator).to(device)
        operands = {name: (matrix, x) for name, matrix in matrices.items()}
        times = time_products(cfg, cfg.kernels, operands, cfg.rounds)
        details |= {f"{case.dataset}, {key}": one.record() for key, one in times.items()}
        for kernel, label in labels.items():
            ms = {name: times[f"{kernel} {name}"].median_ms for name in matrices}
            rows.append(Row((case.title, label), _time_cells(ms, missing, paper.get("speedup", {}))))
        capacity = case.modelled_cache_rows
        modelled: dict[str, Value] = {
            name: 100 * hit_rate(matrix.indptr, matrix.indices, matrix.shape[1], capacity)
            for name, matrix in matrices.items()
        }
        profiled = l2_hit_rates(matrices, case.hidden, device)
        rows.append(Row((case.title, MODEL), cells(_rates(modelled, missing), paper.get("hit_rate"), "%", "simulated")))
        rows.append(Row((case.title, PROFILER), cells(_rates(profiled, missing), paper.get("hit_rate"), "%")))
    panels = [bars("hit rate of H (ours: model, paper: profiler)", "%", with_label(rows, MODEL), cfg.orders, "ours")]
    for label in dict.fromkeys(labels.values()):
        title = f"{label}: speed-up over the original order"
        panels.append(bars(title, "speed-up", with_label(rows, label), cfg.orders))
    return Result(("graph", "of"), (*cfg.orders, BEST), rows, panels, found, cfg.notes, {"times": details})


def ordered(cfg: Config, case: Case) -> tuple[dict[str, csr_array], dict[str, str]]:
    """The pattern of A + I in each order, and why an order is missing."""
    matrices, missing = {}, {}
    for name in cfg.orders:
        own = [f"reorder={name}", "reorder.scope=whole", "normalization=none"]
        try:
            prepared, _ = jobs.prepare_job(cfg, case, jobs.ONE_RANK, own, exact=True)
            matrices[name] = prepared.adj.matrix
        except UnsupportedError as error:
            missing[name] = str(error)
    return matrices, missing


def _rates(rates: Mapping[str, Value], missing: Mapping[str, str]) -> dict[str, Value]:
    """``rates`` and, last, the highest of them."""
    best = max((rate for rate in map(number, rates.values()) if rate is not None), default=None)
    return {**rates, **missing, BEST: best}


def _time_cells(ms: Mapping[str, float], missing: Mapping[str, str], published: Mapping[str, float]) -> dict[str, Cell]:
    times: dict[str, Value] = {**ms, BEST: min(ms.values()), **missing}
    of_orders = {name: Cell(value, unit="ms", paper_ratio=published.get(name)) for name, value in times.items()}
    return speedups(of_orders, BASE)
