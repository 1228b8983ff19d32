"""What each order of the whole graph costs, and what it gives: the time of a product, edge cut and bandwidth.

The ratio of a product is to the same product in the graph's own order (or in ``baseline``'s): below 1 is a gain.
"""

import functools
from dataclasses import replace

import torch

from fullgnn.bench.config import BenchConfig, choices, run_config
from fullgnn.bench.harness import Measurement, Method, Missing, Outcome, attempt, compare, measure, timed
from fullgnn.bench.ours import order_quality, whole_graph_order
from fullgnn.bench.peers import Makers
from fullgnn.bench.peers.torch_sparse import spmm_csr
from fullgnn.bench.problem import as_problem, load_graph
from fullgnn.bench.spmm import make_products, operand
from fullgnn.distributed import World
from fullgnn.errors import ConfigError

COLUMNS = {"order_s": "order s", "edge_cut": "edge cut", "bandwidth": "bandwidth"}

TORCH: Makers = {"torch": {"torch CSR @": spmm_csr}}


def run(cfg: BenchConfig, world: World) -> Outcome:
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
        quality = {"order_s": order_s, **order_quality(ordered, cfg.num_parts)}
        products, unable = make_products(cfg, problem, TORCH, ["torch"])
        missing += [replace(one, case={"order": order}) for one in unable]
        for width in cfg.widths:
            x = operand(problem, width, cfg.seed)
            for name, (kind, multiply, _) in products.items():
                once = timed(functools.partial(multiply, x), world.device)
                case = {"order": order, "width": width}
                methods.append(Method(name, kind, once, 1, torch.get_num_threads(), case, dict(quality)))
    measurements, failed = measure(methods, world, cfg.rounds, cfg.warmup, cfg.budget_s)
    by_case = {(one.method, one.case["order"], one.case["width"]): one for one in measurements}

    def unordered(one: Measurement) -> Measurement | None:
        return by_case.get((one.method, base, one.case["width"]))

    statistics = as_problem(cfg, graph, world.device).statistics()
    return Outcome(compare(measurements, unordered), missing + failed, COLUMNS, statistics)
