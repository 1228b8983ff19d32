"""One training epoch: forward, backward and Adam of a two-layer GCN on the whole graph, by our presets and by peers.

Every method starts from the same weights and uses no dropout, so all of them must report the same losses:
``loss_error`` is the largest difference from the baseline's. In a job of several processes our presets run on all of
them; on one process, our presets and the peers run in processes of their own, in the same rounds (``alone.py``).
"""

from collections.abc import Callable

import torch

from fullgnn.bench.alone import Alone, Found
from fullgnn.bench.config import BenchConfig, preset_config, presets
from fullgnn.bench.harness import Method, Missing, Outcome, attempt, check_baseline, compare, loss_error, measure, timed
from fullgnn.bench.ours import trainer
from fullgnn.bench.peers import EPOCH, set_up
from fullgnn.bench.problem import Problem, as_problem, first_weights, load_graph
from fullgnn.distributed import World, broadcast_object, from_rank0
from fullgnn.errors import FullGNNError
from fullgnn.graph import Graph


def run(cfg: BenchConfig, world: World) -> Outcome:
    """Time the epochs of all methods; called on every rank."""
    graph = from_rank0(lambda: load_graph(cfg))
    problem = as_problem(cfg, graph, world.device) if graph is not None else None
    widths = broadcast_object(problem.widths if problem else None)
    statistics = problem.statistics() if problem else None
    methods, missing = ours(cfg, world, graph, widths)
    processes: list[Alone] = []
    if world.size > 1:
        del problem  # the peers make it again in their processes
        numbers = cfg.alone_threads or [torch.get_num_threads()]
        processes = from_rank0(lambda: [Alone(single_process, cfg, threads) for threads in numbers]) or []
        for process in processes:
            methods += process.methods
            missing += [one for one in process.missing if one not in missing]  # each process reports the same
    elif problem is not None:
        found, absent = peers(cfg, problem)
        methods, missing = methods + found, missing + absent
    from_rank0(lambda: check_baseline(methods, cfg.baseline))

    measurements, failed = measure(methods, world, cfg.epochs - cfg.warmup, cfg.warmup, cfg.budget_s)
    for process in processes:
        process.stop()
    base = compare(measurements, cfg.baseline)
    for one in measurements:
        one.method.details["last_loss"] = one.values[-1]
        one.method.details["loss_error"] = loss_error(one, base) if base else None
    return Outcome(measurements, missing + failed, statistics)


def ours(cfg: BenchConfig, world: World, graph: Graph | None, widths: list[int]) -> Found:
    """The presets, on all ranks of ``world``; a preset that this number of processes cannot run is missing.

    Args:
        graph: the whole graph on rank 0, None elsewhere.
        widths: of the layers: features, hidden, classes.
    """
    methods, missing = [], []
    for preset in presets() if cfg.presets is None else cfg.presets:

        def make(preset: str = preset) -> Callable[[], float]:
            return trainer(preset_config(cfg, preset, widths[1]), graph, world, first_weights(widths, cfg.seed))

        step, setup_s, reason = attempt(make, FullGNNError)  # the same on every rank
        if reason:
            missing.append(Missing(preset, reason, {"processes": world.size}))
        else:
            run = timed(step, world.device)
            methods.append(Method(preset, "ours", run, world.size, details={"setup_s": setup_s}))
    return methods, missing


def peers(cfg: BenchConfig, problem: Problem) -> Found:
    """The peers of the chosen libraries, on this process."""
    makers = {library: EPOCH[library] for library in cfg.peers}
    steps, missing = set_up(makers, problem, first_weights(problem.widths, cfg.seed))
    device = problem.features.device
    methods = [
        Method(name, "peer", timed(step, device), details={"setup_s": setup_s})
        for name, (step, setup_s) in steps.items()
    ]
    return methods, missing


def single_process(cfg: BenchConfig, world: World) -> Found:
    """Our presets and the peers in a process that was started for them; the graph is in the cache by now."""
    problem = as_problem(cfg, load_graph(cfg), world.device)
    methods, missing = ours(cfg, world, problem.graph, problem.widths)
    found, absent = peers(cfg, problem)
    return methods + found, missing + absent
