"""One product (A + I) @ X, all entries of A + I being 1: our kernels and the other libraries'.

``op=spmm`` times it by width. The result of each method is first compared with a product in float64 on some rows; a
method with a wrong result is missing, whatever its time.

``op=reorder`` times it in each order of the whole graph, beside the time of computing the order, its edge cut and its
bandwidth. Its ratios are to the same product in the graph's own order (or in ``baseline``'s): below 1 is a gain.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.bench.config import BenchConfig, run_config
from fullgnn.bench.exact import exact_rows, sample_rows
from fullgnn.bench.gpu.contestants import Contestant
from fullgnn.bench.gpu.products import LookalikeProduct
from fullgnn.bench.harness import Method, Missing, Outcome, Results, attempt, check_baseline, compare, measure, timed
from fullgnn.bench.peers import SPMM, MadeMethod, Makers, set_up
from fullgnn.bench.problem import Problem, as_problem, load_graph, whole_graph_order
from fullgnn.config import build
from fullgnn.config.keys import choices
from fullgnn.distributed import World
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.partition import Partition
from fullgnn.partition.counts import bandwidth, edge_cut

_WRONG = 0.02  # relative; a kernel that gathers bfloat16 stays below


def run(cfg: BenchConfig, world: World) -> Results:
    """``op=spmm``, in one process."""
    problem = as_problem(cfg, load_graph(cfg), world.device)
    products, missing = make_products(cfg, problem, {library: SPMM[library] for library in cfg.peers})
    yield Outcome(missing=missing, problem=problem.statistics())
    for width in cfg.widths:
        x, case = operand(problem, width, cfg.seed), {"width": width}
        rows = sample_rows(problem.block)
        expected = exact_rows(problem.block, x, rows)
        methods, missing = [], []
        for name, (multiply, setup_s) in products.items():
            error, _, reason = attempt(functools.partial(relative_error, multiply, x, rows, expected))
            if reason is None and not error <= _WRONG:
                reason = f"wrong result: relative error {error:.1e}"
            if reason:
                missing.append(Missing(name, reason, case))
            else:
                methods.append(product_method(name, multiply, x, case, {"setup_s": setup_s, "error": error}))
        check_baseline(methods, cfg.baseline)
        measurements, failed = measure(methods, world, cfg.rounds, cfg.warmup, cfg.budget_s)
        for measured in measurements:
            measured.details["gflop_per_s"] = 2 * problem.nnz * width / measured.median_ms / 1e6
        compare(measurements, cfg.baseline)
        yield Outcome(measurements, missing + failed)


def run_orders(cfg: BenchConfig, world: World) -> Results:
    """``op=reorder``, in one process."""
    orders = cfg.orders or choices("reorder")
    base = cfg.baseline or ("none" if "none" in orders else orders[0])
    if base not in orders:
        raise ConfigError(f"baseline={base} is not among the orders: choose one of {', '.join(orders)}")
    graph = load_graph(cfg)
    methods: list[Method] = []
    missing: list[Missing] = []
    for order in orders:
        run_cfg = run_config(cfg, f"reorder={order}")
        perm, order_s, reason = attempt(functools.partial(whole_graph_order, run_cfg, graph))
        if reason:
            missing.append(Missing("every product", reason, {"order": order}))
            continue
        ordered = graph.permute(perm)
        problem = as_problem(cfg, ordered, world.device)
        details = {"order_s": order_s, **order_quality(ordered, cfg.num_parts)}
        products, unable = make_products(cfg, problem, {"torch": {"torch CSR @": SPMM["torch"]["torch CSR @"]}})
        missing += [replace(absent, case={"order": order}) for absent in unable]
        for width in cfg.widths:
            x, case = operand(problem, width, cfg.seed), {"order": order, "width": width}
            methods += [product_method(name, multiply, x, case, details) for name, (multiply, _) in products.items()]
    measurements, failed = measure(methods, world, cfg.rounds, cfg.warmup, cfg.budget_s)
    by_case = {(of.name, *of.method.case.values()): of for of in measurements}
    for (name, _, width), measured in by_case.items():
        measured.compare_with(by_case.get((name, base, width)))
    yield Outcome(measurements, missing + failed, as_problem(cfg, graph, world.device).statistics())


def make_products(cfg: BenchConfig, problem: Problem, peers: Makers) -> tuple[dict[str, MadeMethod], list[Missing]]:
    """Functions x -> (A + I) @ x of our kernels and of ``peers``, by name; see :func:`set_up`."""

    def make(name: str, problem: Problem) -> Callable[[Tensor], Tensor]:
        kernel = Contestant(name, functools.partial(build, run_config(cfg, name).kernel))
        return LookalikeProduct(kernel, problem.block, problem.indptr.device).multiply

    names = [f"kernel={name}" for name in cfg.kernels or choices("kernel")]
    return set_up({"fullgnn": {name: functools.partial(make, name) for name in names}, **peers}, problem)


def product_method(name: str, multiply: Any, x: Tensor, case: dict[str, Any], details: dict[str, Any]) -> Method:
    """One call of ``multiply`` with ``x``."""
    kind = "ours" if name.startswith("kernel=") else "peer"
    return Method(name, kind, timed(functools.partial(multiply, x), x.device), case=case, details=details)


def operand(problem: Problem, width: int, seed: int) -> Tensor:
    """(num_nodes, width) float32 random X."""
    x = torch.randn(problem.num_nodes, width, generator=torch.Generator().manual_seed(seed + width))
    return x.to(problem.indices.device)


def order_quality(graph: Graph, num_parts: int) -> dict[str, float | int]:
    """Fraction of the edges between ``num_parts`` consecutive parts of equal size, and the bandwidth."""
    adj = graph.adjacency(np.int8)
    return {"edge_cut": edge_cut(adj, Partition.equal(graph.num_nodes, num_parts)), "bandwidth": bandwidth(adj)}


def relative_error(multiply: Callable[[Tensor], Tensor], x: Tensor, rows: Tensor, expected: Tensor) -> float:
    """Largest difference on ``rows``, over the largest entry."""
    return float((multiply(x)[rows].double() - expected).abs().max() / expected.abs().max())
