"""What an epoch is made of, each timed alone: products and collectives.

``op=spmm`` times the product (A + I) @ X, all entries of A + I being 1, by width: our kernels and the other libraries'.
The result of each method is first compared with a product in float64 on some rows; a method with a wrong result is
missing, whatever its time.

``op=reorder`` times this product in each order of the whole graph, beside the time of computing the order, its edge cut
and its bandwidth. Its ratios are to the same product in the graph's own order (or in ``baseline``'s): below 1 is a
gain.

``op=collectives`` times the collectives that a scheme is made of, as the backend offers them, by the size of the whole
tensor. ``GB/s`` is that size over the time: the rate that a rank with the whole tensor sees, not the traffic of one
algorithm.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fullgnn.bench import harness
from fullgnn.bench.config import BenchConfig, run_config
from fullgnn.bench.gpu.products import Contestant, LookalikeProduct, exact_rows, sample_rows
from fullgnn.bench.harness import Method, Missing, Outcome, Results
from fullgnn.bench.peers import SPMM, candidates
from fullgnn.bench.problem import Problem, as_problem, load_graph, whole_graph_order
from fullgnn.config import build
from fullgnn.config.keys import choices
from fullgnn.distributed import World
from fullgnn.partition import Partition
from fullgnn.partition.counts import bandwidth, edge_cut

_WRONG = 0.02  # relative; a kernel that gathers bfloat16 stays below

# The collectives on one tensor, which torch 2.13 renamed.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def run_spmm(cfg: BenchConfig, world: World) -> Results:
    """``op=spmm``, in one process."""
    problem = as_problem(cfg, load_graph(cfg), world.device)
    products, missing = harness.set_up([*kernels(cfg, problem), *candidates(SPMM, cfg.peers, problem)])
    yield Outcome(missing=missing, problem=problem.statistics())
    for width in cfg.widths:
        x, case = operand(problem, width, cfg.seed), {"width": width}
        rows = sample_rows(problem.block)
        expected = exact_rows(problem.block, x, rows)
        methods, wrong = list[Method](), list[Missing]()
        for product in products:
            error, _, reason = harness.attempt(partial(relative_error, product.run, x, rows, expected))
            if reason is None and not error <= _WRONG:
                reason = f"wrong result: relative error {error:.1e}"
            if reason:
                wrong.append(Missing(product.name, reason, case))
            else:
                about = harness.rate("gflop_per_s", 2 * problem.block.nnz * width)
                methods.append(replace(applied(product, x, case, {**product.details, "error": error}), about=about))
        yield Outcome(missing=wrong)
        yield harness.compared(cfg, world, methods)


def run_orders(cfg: BenchConfig, world: World) -> Results:
    """``op=reorder``, in one process."""
    orders = cfg.orders or choices("reorder")
    harness.check_baseline(cfg.baseline, orders, "orders")
    base = cfg.baseline or ("none" if "none" in orders else orders[0])
    graph = load_graph(cfg)
    methods, missing = list[Method](), list[Missing]()
    for order in orders:
        run_cfg = run_config(cfg, f"reorder={order}")
        perm, order_s, reason = harness.attempt(partial(whole_graph_order, run_cfg, graph))
        if reason:
            missing.append(Missing("every product", reason, {"order": order}))
            continue
        ordered = graph.permute(perm)
        problem = as_problem(cfg, ordered, world.device)
        adj, parts = ordered.adjacency(np.int8), Partition.equal(graph.num_nodes, cfg.num_parts)  # consecutive
        details = {"order_s": order_s, "edge_cut": edge_cut(adj, parts), "bandwidth": bandwidth(adj)}
        peers = [peer for peer in candidates(SPMM, ["torch"], problem) if peer.name == "torch CSR @"]
        products, unable = harness.set_up([*kernels(cfg, problem), *peers])
        missing += [replace(absent, case={"order": order}) for absent in unable]
        for width in cfg.widths:
            x, case = operand(problem, width, cfg.seed), {"order": order, "width": width}
            methods += [applied(product, x, case, details) for product in products]
    measurements, failed = harness.measure(methods, world, cfg.rounds, cfg.warmup, cfg.budget_s)
    by_case = {(of.name, *of.method.case.values()): of for of in measurements}
    for (name, _, width), measured in by_case.items():
        measured.compare_with(by_case.get((name, base, width)))
    yield Outcome(measurements, missing + failed, as_problem(cfg, graph, world.device).statistics())


def kernels(cfg: BenchConfig, problem: Problem) -> Iterable[Method]:
    """Our kernels as methods, whose ``run`` makes a function x -> (A + I) @ x."""

    def make(name: str) -> Callable[[Tensor], Tensor]:
        kernel = Contestant(name, partial(build, run_config(cfg, name).kernel))
        return LookalikeProduct(kernel, problem.block, problem.features.device).multiply

    for name in cfg.kernels or choices("kernel"):
        yield Method(f"kernel={name}", "ours", partial(make, f"kernel={name}"))


def applied(product: Method, x: Tensor, case: dict[str, Any], details: dict[str, Any]) -> Method:
    """One call of a ``product`` with ``x``."""
    return replace(product, run=harness.timed(partial(product.run, x), x.device), case=case, details=details)


def operand(problem: Problem, width: int, seed: int) -> Tensor:
    """(num_nodes, width) float32 random X."""
    x = torch.randn(problem.graph.num_nodes, width, generator=torch.Generator().manual_seed(seed + width))
    return x.to(problem.features.device)


def relative_error(multiply: Callable[[Tensor], Tensor], x: Tensor, rows: Tensor, expected: Tensor) -> float:
    """Largest difference on ``rows``, over the largest entry."""
    return float((multiply(x)[rows].double() - expected).abs().max() / expected.abs().max())


def run_collectives(cfg: BenchConfig, world: World) -> Results:
    """Time every collective at every size of ``cfg.sizes_mb``; called on every rank."""
    for size_mb in cfg.sizes_mb:
        num_floats = max(1, int(size_mb * 2**18) // world.size) * world.size
        case, about = {"size_mb": size_mb}, harness.rate("gb_per_s", 4 * num_floats)
        methods = [
            Method(name, "collective", harness.timed(call, world.device), world.size, case=case, about=about)
            for name, call in collectives(world, num_floats).items()
        ]
        yield Outcome(*harness.measure(methods, world, cfg.rounds, cfg.warmup, cfg.budget_s))


def collectives(world: World, num_floats: int) -> dict[str, Callable[[], object]]:
    """Each collective on a whole tensor of ``num_floats`` float32; ``piece`` is the part of one rank."""
    whole = torch.ones(num_floats, device=world.device)
    other = torch.zeros_like(whole)
    piece = torch.ones(num_floats // world.size, device=world.device)
    group = world.group
    return {
        "broadcast": partial(dist.broadcast, whole, src=0, group=group),
        "all_reduce": partial(dist.all_reduce, other, group=group),
        "all_gather": partial(_all_gather, other, piece, group=group),
        "reduce_scatter": partial(_reduce_scatter, piece, whole, group=group),
        "all_to_all_single": partial(dist.all_to_all_single, other, whole, group=group),
        "isend/irecv pair": partial(_swap, world, whole, other),
    }


def _swap(world: World, whole: Tensor, other: Tensor) -> None:
    """Ranks 2i and 2i + 1 send each other the whole tensor; the last of an odd number has nothing to do."""
    partner = world.rank ^ 1
    if partner < world.size:
        calls = [dist.P2POp(dist.isend, whole, partner), dist.P2POp(dist.irecv, other, partner)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
