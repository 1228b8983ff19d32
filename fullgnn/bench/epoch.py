"""One training epoch: forward, backward and Adam of a two-layer GCN on the whole graph, by preset of ours and by peer.

Every method starts from the same weights and drops nothing, so all of them must report the same losses:
``loss_error`` is the largest difference from the baseline's. In a job of several processes ours runs on all of them;
ours on one process and the peers run in processes of their own, in the same rounds (``alone.py``).
"""

import time

import torch

from fullgnn.bench.alone import Alone, Found
from fullgnn.bench.config import BenchConfig, preset_config, presets
from fullgnn.bench.harness import (
    Measurement,
    Method,
    Missing,
    Outcome,
    baseline,
    check_baseline,
    compare,
    measure,
    reason_of,
    timed,
)
from fullgnn.bench.ours import trainer
from fullgnn.bench.peers import EPOCH, set_up
from fullgnn.bench.problem import Problem, as_problem, first_weights, load_graph
from fullgnn.distributed import World, broadcast_object, from_rank0
from fullgnn.errors import FullGNNError
from fullgnn.graph import Graph

COLUMNS = {"setup_s": "set-up s", "loss_error": "loss error"}


def run(cfg: BenchConfig, world: World) -> Outcome:
    """Called on every rank."""
    graph = from_rank0(lambda: load_graph(cfg))
    problem = as_problem(cfg, graph, world.device) if graph is not None else None
    widths = broadcast_object(problem.widths if problem else None)
    statistics = problem.statistics() if problem else None
    methods, missing = ours(cfg, world, graph, widths)
    processes: list[Alone] = []
    if world.size > 1:
        del problem  # what the peers need is made where they run
        processes = from_rank0(lambda: _start_alone(cfg)) or []
        for process in processes:
            methods += process.methods
            missing += [one for one in process.missing if one not in missing]  # as each process says
    elif problem is not None:
        methods, missing = _joined((methods, missing), peers(cfg, problem))
    from_rank0(lambda: check_baseline(methods, cfg.baseline))

    measurements, failed = measure(methods, world, cfg.epochs - cfg.warmup, cfg.warmup, cfg.budget_s)
    for process in processes:
        process.stop()
    base = baseline(measurements, cfg.baseline)
    for one in measurements:
        one.details["last_loss"] = one.values[-1]
        one.details["loss_error"] = loss_error(one, base) if base else None
    return Outcome(compare(measurements, lambda one: base), missing + failed, COLUMNS, statistics)


def ours(cfg: BenchConfig, world: World, graph: Graph | None, widths: list[int]) -> Found:
    """The presets, on all ranks of ``world``; one that this number of processes cannot run is missing.

    Args:
        graph: the whole graph on rank 0, None elsewhere.
        widths: of the layers: features, hidden, classes.
    """
    methods, missing = [], []
    for preset in presets() if cfg.presets is None else cfg.presets:
        begin = time.perf_counter()
        try:
            run_cfg = preset_config(cfg, preset, widths[1])
            step = trainer(run_cfg, graph, world, first_weights(widths, cfg.seed))
        except FullGNNError as error:  # the same on every rank
            missing.append(Missing(preset, reason_of(error), {"processes": world.size}))
            continue
        details = {"setup_s": time.perf_counter() - begin}
        run = timed(step, world.device)
        methods.append(Method(preset, "ours", run, world.size, torch.get_num_threads(), details=details))
    return methods, missing


def peers(cfg: BenchConfig, problem: Problem) -> Found:
    """The peers of the chosen libraries, on this process."""
    steps, missing = set_up(EPOCH, cfg.peers, problem, first_weights(problem.widths, cfg.seed))
    device, threads = problem.features.device, torch.get_num_threads()
    methods = [
        Method(name, "peer", timed(step, device), 1, threads, details={"setup_s": setup_s})
        for name, (step, setup_s) in steps.items()
    ]
    return methods, missing


def single_process(cfg: BenchConfig, world: World) -> Found:
    """Ours and the peers in a process started for them."""
    problem = as_problem(cfg, load_graph(cfg), world.device)
    return _joined(ours(cfg, world, problem.graph, problem.widths), peers(cfg, problem))


def loss_error(one: Measurement, base: Measurement) -> float:
    """Largest difference of the losses over the epochs that both ran."""
    return max(abs(a - b) for a, b in zip(one.values, base.values))


def _start_alone(cfg: BenchConfig) -> list[Alone]:
    """One process for each thread count; the graph is in the cache by now."""
    return [Alone(single_process, cfg, threads) for threads in cfg.alone_threads or [torch.get_num_threads()]]


def _joined(one: Found, other: Found) -> Found:
    return one[0] + other[0], one[1] + other[1]
