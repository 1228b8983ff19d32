"""Figure 8: orders of the whole graph, by the hit rate of the cache that holds rows of H, and by SpMM time."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from omegaconf import MISSING
from scipy.sparse import csr_array

from fullgnn.bench.harness import interleaved
from fullgnn.bench.papers import jobs
from fullgnn.bench.papers.config import TargetConfig
from fullgnn.bench.papers.graphs import Case, cases
from fullgnn.bench.papers.products import kernel_label, l2_hit_rates, product
from fullgnn.bench.papers.result import OURS_AND_PAPER, Cell, Result, Value, bars, cells, number, speedups, with_label
from fullgnn.errors import UnsupportedError
from fullgnn.prepare.statistics import whole_matrix
from fullgnn.reorder.cache_model import hit_rate

BASE, BEST = "none", "best"
MODEL, PROFILER = "hit rate, model", "hit rate, profiler"


@dataclass
class Config(TargetConfig):
    """Keys of ``conf/experiment/reproduce/fig8.yaml``."""

    orders: list[str] = MISSING
    kernels: list[str] = MISSING
    rounds: int = MISSING
    paper: dict[str, Any] = field(default_factory=dict)
    """``hit_rate`` in per cent and ``speedup`` of a product by dataset, and by order or ``best``."""


def run(cfg: Config) -> Result:
    """Fill a row of times for each graph and kernel, and rows of hit rates by the model and by the profiler."""
    columns, device = (*cfg.orders, BEST), cfg.torch_device
    result = Result(("graph", "of"), columns, cases=cases(cfg, features=False), notes=cfg.notes)
    labels = {kernel: kernel_label(kernel, device) for kernel in cfg.kernels}
    result.details["times"] = {}
    for case in result.cases:
        paper = cfg.paper.get(case.dataset, {})
        matrices, missing = ordered(cfg, case)
        generator = torch.Generator().manual_seed(cfg.seed)
        x = torch.randn(case.graph.num_nodes, case.hidden, generator=generator).to(device)
        pairs = itertools.product(matrices.items(), cfg.kernels)
        steps = {f"{kernel} {name}": product(kernel, matrix, x) for (name, matrix), kernel in pairs}
        times = interleaved(steps, device, cfg.rounds)
        result.details["times"] |= {f"{case.dataset}, {key}": one.record() for key, one in times.items()}
        for kernel, label in labels.items():
            ms = {name: times[f"{kernel} {name}"].median_ms for name in matrices}
            values: dict[str, Value] = {**ms, BEST: min(ms.values()), **missing}
            published = paper.get("speedup", {})
            own = {name: Cell(value, unit="ms", paper_ratio=published.get(name)) for name, value in values.items()}
            result.add((case.title, label), speedups(own, BASE))
        modelled: dict[str, Value] = {
            name: 100 * hit_rate(matrix.indptr, matrix.indices, matrix.shape[1], case.modelled_cache_rows)
            for name, matrix in matrices.items()
        }
        profiled, rates = l2_hit_rates(matrices, case.hidden, device), paper.get("hit_rate")
        result.add((case.title, MODEL), cells(_with_best(modelled, missing), rates, "%", "simulated"))
        result.add((case.title, PROFILER), cells(_with_best(profiled, missing), rates, "%"))
    products = [row for row in result.rows if row.labels[1] in labels.values()]
    title, hit_rates = "hit rate of H (ours: model, paper: profiler)", with_label(result.rows, MODEL)
    result.panels += bars(title, "%", hit_rates, cfg.orders, OURS_AND_PAPER)
    result.panels += bars("{1}: speed-up over the original order", "speed-up", products, cfg.orders)
    return result


def ordered(cfg: Config, case: Case) -> tuple[dict[str, csr_array], dict[str, Value]]:
    """Return the pattern of A + I in each order, and why an order is missing."""
    matrices: dict[str, csr_array] = {}
    missing: dict[str, Value] = {}
    for name in cfg.orders:
        own = [f"reorder={name}", "reorder.scope=whole", "normalization=none"]
        try:
            prepared = jobs.prepare_job(cfg, case, jobs.ONE_RANK, own, exact=True)
            matrices[name] = whole_matrix(prepared, self_loops=True)
        except UnsupportedError as error:
            missing[name] = str(error)
    return matrices, missing


def _with_best(rates: Mapping[str, Value], missing: Mapping[str, Value]) -> dict[str, Value]:
    """Join ``rates``, the reasons why others are missing and, last, the highest rate."""
    best = max((rate for rate in map(number, rates.values()) if rate is not None), default=None)
    return {**rates, **missing, BEST: best}
