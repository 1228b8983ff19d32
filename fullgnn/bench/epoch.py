"""One training epoch, forward, backward and Adam, of a model on the whole graph, by our presets and by peers.

Every method starts from the same weights and uses no dropout, so all of them must report the same losses:
``loss_error`` is the largest difference from the baseline's. In a job of several processes our presets run on all of
them; on one process, our presets and the peers run in processes of their own, in the same rounds.
With ``separate``, each preset on one process and each library has a process to itself, and its peak memory is known.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fullgnn.bench.config import BenchConfig, preset_config, presets, run_config
from fullgnn.bench.environment import variables
from fullgnn.bench.harness import Method, Missing, Outcome, attempt, check_baseline, compare, loss_error, measure, timed
from fullgnn.bench.ours import trainer
from fullgnn.bench.peers import EPOCH, set_up
from fullgnn.bench.problem import Problem, as_problem, first_weights, load_graph, peer_weights
from fullgnn.bench.process import Child
from fullgnn.distributed import World, all_gather_objects, broadcast_object, from_rank0, world_of_one
from fullgnn.distributed.launch import environment
from fullgnn.errors import FullGNNError, UnsupportedError
from fullgnn.graph import Graph
from fullgnn.telemetry.log import setup_logging
from fullgnn.telemetry.machine import forget_peak_process_bytes, peak_process_bytes

Found = tuple[list[Method], list[Missing]]


def run(cfg: BenchConfig, world: World) -> Outcome:
    """Time the epochs of all methods; called on every rank."""
    graph = from_rank0(lambda: load_graph(cfg))
    problem = as_problem(cfg, graph, world.device) if graph is not None else None
    sizes = broadcast_object((problem.widths, problem.is_bipartite) if problem else None)
    statistics = problem.statistics() if problem else None
    methods, missing = ours(cfg, world, graph, *sizes) if world.size > 1 or not cfg.separate else ([], [])
    processes: list[Alone] = []
    if world.size > 1 or cfg.separate:
        del problem, graph  # they are made again in the processes
        processes = from_rank0(lambda: [Alone(part) for part in parts_alone(cfg)]) or []
        for process in processes:
            methods += process.methods
            missing += [one for one in process.missing if one not in missing]  # each process reports the same
    elif problem is not None:
        found, absent = peers(cfg, problem)
        methods, missing = methods + found, missing + absent
    from_rank0(lambda: check_baseline(methods, cfg.baseline))

    forget_peak_process_bytes()
    measurements, failed = measure(methods, world, cfg.epochs - cfg.warmup, cfg.warmup, cfg.budget_s)
    peak_bytes: int | None = max(all_gather_objects(peak_process_bytes()))
    peak_of = dict.fromkeys((method.label for method in methods), peak_bytes)
    for process in processes:
        peak_of |= dict.fromkeys((method.label for method in process.methods), process.stop())
    base = compare(measurements, cfg.baseline)
    for one in measurements:
        if cfg.separate and (peak := peak_of[one.method.label]) is not None:
            one.method.details["peak_mb"] = peak / 1e6
        one.method.details["last_loss"] = one.values[-1]
        one.method.details["loss_error"] = loss_error(one, base) if base else None
    return Outcome(measurements, missing + failed, statistics)


def parts_alone(cfg: BenchConfig) -> list[BenchConfig]:
    """What each process beside the job runs, for each number of threads: all methods, or with ``separate`` one preset,
    or one library."""
    own = cfg.presets if cfg.alone is None else cfg.alone
    parts: list[dict[str, Any]] = [{"presets": own}]
    if cfg.separate:
        parts = [{"presets": [preset], "peers": []} for preset in (presets() if own is None else own)]
        parts += [{"presets": [], "peers": [library]} for library in cfg.peers]
    return [
        replace(cfg, nproc=1, threads=threads, alone=None, alone_threads=None, **part)
        for threads in cfg.alone_threads or [torch.get_num_threads()]
        for part in parts
    ]


def ours(cfg: BenchConfig, world: World, graph: Graph | None, widths: list[int], bipartite: bool) -> Found:
    """The presets, on all ranks of ``world``; a preset that this number of processes cannot run is missing.

    Args:
        graph: the whole graph on rank 0, None elsewhere.
        widths: of the layers: features, hidden, classes.
        bipartite: whether the nodes are users and items.
    """
    methods, missing = [], []
    for preset in presets() if cfg.presets is None else cfg.presets:

        def make(preset: str = preset) -> Callable[[], float]:
            weights = first_weights(widths, cfg.seed, cfg.gnn)
            return trainer(preset_config(cfg, preset, widths[1], bipartite), graph, world, weights)

        step, setup_s, reason = attempt(make, FullGNNError)  # the same on every rank
        if reason:
            missing.append(Missing(preset, reason, {"processes": world.size}))
        else:
            run = timed(step, world.device)
            methods.append(Method(preset, "ours", run, world.size, details={"setup_s": setup_s}))
    return methods, missing


def peers(cfg: BenchConfig, problem: Problem) -> Found:
    """The peers of the chosen libraries, on this process."""
    makers = {library: EPOCH[cfg.gnn][library] for library in cfg.peers}
    steps, missing = set_up(makers, problem, peer_weights(problem, cfg.seed, cfg.gnn))
    device = problem.features.device
    methods = [
        Method(name, "peer", timed(step, device), details={"setup_s": setup_s})
        for name, (step, setup_s) in steps.items()
    ]
    return methods, missing


def single_process(cfg: BenchConfig, world: World) -> Found:
    """Our presets and the peers in a process that was started for them; the graph is in the cache by now."""
    problem = as_problem(cfg, load_graph(cfg), world.device)
    methods, missing = ours(cfg, world, problem.graph, problem.widths, problem.is_bipartite)
    found, absent = peers(cfg, problem)
    return methods + found, missing + absent


class Alone(Child):
    """A process beside the job, which holds the methods of its own ``cfg``.

    It is a job of one rank, in which our training runs as it always does. It sleeps on a pipe until it is told to run a
    method once, and rank 0 sleeps meanwhile. The process takes the time itself.

    Raises:
        UnsupportedError: the methods cannot be set up, or the process ended.
    """

    def __init__(self, cfg: BenchConfig):
        with environment(variables(cfg, 1)):
            super().__init__(_serve, cfg)
        methods, self.missing = self._answer()
        self.methods = [replace(method, run=partial(self._run, number)) for number, method in enumerate(methods)]

    def stop(self) -> int | None:
        """End the process.

        Returns:
            its peak memory since its methods were set up, in bytes; None if the process has ended already.
        """
        peak_bytes = None
        with suppress(OSError, UnsupportedError):
            peak_bytes = self._run(None)
        self.pipe.close()
        self.status(timeout_s=10)
        return peak_bytes

    def _run(self, number: int | None) -> Any:
        self.pipe.send(number)
        return self._answer()

    def _answer(self) -> Any:
        try:
            answer, reason = self.pipe.recv()
        except EOFError:
            reason = f"its process ended with status {self.status()}"
        if reason is not None:
            raise UnsupportedError(reason)
        return answer


def _serve(pipe: Any, cfg: BenchConfig) -> None:
    """The process: build the methods, then run the one whose number arrives until rank 0 closes the pipe.

    For None it answers the peak memory in bytes.
    """
    setup_logging(0)
    with suppress(EOFError), world_of_one(run_config(cfg).runtime) as world:
        found, _, reason = attempt(lambda: single_process(cfg, world))
        methods, missing = found or ([], [])
        pipe.send((([replace(method, run=None) for method in methods], missing), reason))
        forget_peak_process_bytes()
        while True:
            number = pipe.recv()
            answer, _, reason = attempt(peak_process_bytes if number is None else methods[number].run)
            pipe.send((answer, reason))
