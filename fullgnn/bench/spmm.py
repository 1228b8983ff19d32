"""One product (A + I) @ X by width, all entries of A + I being 1: our kernels and the other libraries'.

Each method's result is compared with a product in float64 on some rows first; one that is wrong is named as missing,
whatever its time.
"""

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fullgnn.bench.config import BenchConfig, choices, run_config
from fullgnn.bench.harness import (
    Measurement,
    Method,
    Missing,
    Outcome,
    attempt,
    baseline,
    check_baseline,
    compare,
    measure,
    timed,
)
from fullgnn.bench.ours import product
from fullgnn.bench.peers import SPMM, Makers, set_up
from fullgnn.bench.problem import Problem, as_problem, load_graph, with_self_loops
from fullgnn.distributed import World

COLUMNS = {"setup_s": "set-up s", "gflop_per_s": "GFLOP/s", "error": "error"}
_NUM_SAMPLES = 256
_WRONG = 0.02  # relative; a kernel that gathers bfloat16 stays below

Product = Callable[[Tensor], Tensor]


def run(cfg: BenchConfig, world: World) -> Outcome:
    problem = as_problem(cfg, load_graph(cfg), world.device)
    products, missing = make_products(cfg, problem, SPMM, cfg.peers)
    measurements: list[Measurement] = []
    for width in cfg.widths:
        x = operand(problem, width, cfg.seed)
        rows, expected = reference(problem, x, cfg.seed)
        methods = []
        for name, (kind, multiply, setup_s) in products.items():
            error, _, reason = attempt(functools.partial(relative_error, multiply, x, rows, expected))
            if reason is None and not error <= _WRONG:
                reason = f"wrong result: relative error {error:.1e}"
            if reason:
                missing.append(Missing(name, reason, {"width": width}))
                continue
            details = {"setup_s": setup_s, "error": error}
            once = timed(functools.partial(multiply, x), world.device)
            methods.append(Method(name, kind, once, 1, torch.get_num_threads(), {"width": width}, details))
        check_baseline(methods, cfg.baseline)
        found, failed = measure(methods, world, cfg.rounds, cfg.warmup, cfg.budget_s)
        for one in found:
            one.details["gflop_per_s"] = 2 * problem.nnz * width / one.median_ms / 1e6
        base = baseline(found, cfg.baseline)
        measurements += compare(found, lambda one, base=base: base)  # type: ignore[misc]
        missing += failed
    return Outcome(measurements, missing, COLUMNS, problem.statistics())


def make_products(
    cfg: BenchConfig, problem: Problem, makers: Makers, libraries: list[str]
) -> tuple[dict[str, tuple[str, Product, float]], list[Missing]]:
    """Name -> (kind, x -> (A + I) @ x, seconds to set it up), of our kernels and of ``makers``."""
    products: dict[str, tuple[str, Product, float]] = {}
    missing = []
    for kernel in cfg.kernels or choices("kernel"):
        run_cfg = run_config(cfg, f"kernel={kernel}")
        multiply, setup_s, reason = attempt(functools.partial(product, run_cfg, problem.indptr, problem.indices))
        if reason:
            missing.append(Missing(f"kernel={kernel}", reason))
        else:
            products[f"kernel={kernel}"] = "ours", multiply, setup_s
    theirs, absent = set_up(makers, libraries, problem)
    products |= {name: ("peer", multiply, setup_s) for name, (multiply, setup_s) in theirs.items()}
    return products, missing + absent


def operand(problem: Problem, width: int, seed: int) -> Tensor:
    """(num_nodes, width) random X."""
    x = torch.randn(problem.num_nodes, width, generator=torch.Generator().manual_seed(seed + width))
    return x.to(problem.indices.device)


def reference(problem: Problem, x: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Some rows of the product, in float64: their ids and the (num_rows, width) result."""
    rows = np.random.default_rng(seed).choice(problem.num_nodes, min(_NUM_SAMPLES, problem.num_nodes), replace=False)
    exact = with_self_loops(problem.graph)[rows].astype(np.float64) @ x.cpu().numpy().astype(np.float64)
    return torch.from_numpy(rows).to(x.device), torch.from_numpy(exact).to(x.device)


def relative_error(multiply: Product, x: Tensor, rows: Tensor, expected: Tensor) -> float:
    """Largest difference on ``rows``, over the largest entry."""
    return float((multiply(x)[rows].double() - expected).abs().max() / expected.abs().max())
