"""One training epoch, forward, backward and Adam, of a model on the whole graph, by our presets and by peers.

Every method starts from the same weights, so that without dropout all of them must report the same losses:
``loss_error`` is the largest difference from the baseline's. In a job of several processes our presets run on all of
them; on one process, our presets and the peers run in processes of their own, in the same rounds.
With ``separate``, each preset on one process and each library has a process to itself, and its peak memory is known.

With ``made``, the graph is a look-alike that is made on the device, and the methods run one after the other, each alone
in the memory of the device.
"""

import gc
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench import harness
from fullgnn.bench import problem as problems
from fullgnn.bench.config import BenchConfig, preset_config, presets, run_config
from fullgnn.bench.harness import Cases, Measurement, Method, Missing, Outcome, Results
from fullgnn.bench.peers import candidates, epoch_makers
from fullgnn.bench.peers.training import LaunchEpoch
from fullgnn.bench.process import variables, worker_with
from fullgnn.config import Config
from fullgnn.distributed import World, all_gather_objects, broadcast_object, from_rank0, world_of_one
from fullgnn.distributed.worker import Worker, WorkerLost
from fullgnn.engine import StepRunner, replay_for, set_up
from fullgnn.errors import FullGNNError
from fullgnn.graph import Graph
from fullgnn.graph.lookalikes import TOYS
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.schemes.options import num_parts
from fullgnn.telemetry.launches import launch_table, profiled
from fullgnn.telemetry.machine import forget_peak_process_bytes, peak_process_bytes
from fullgnn.telemetry.meter import Meter

_PROFILED_EPOCHS = 5
_HOST_S_PER_ENTRY = 3e-8  # each preset shards the adjacency on the host
_LEAST_S, _MOST_S = 6.0, 150.0  # of one method on a graph that is made on the device


class Epochs:
    """The training epochs of a run of ``cfg`` from given first weights; every rank of ``world`` makes them.

    A call launches one epoch; what it returns waits for the loss before its update, the same on every rank, and reads
    it.

    Args:
        graph: the whole graph on rank 0, which replaces ``cfg.dataset``; None elsewhere.
        weights: (in, out) first weights of the layers; empty: the model keeps its own.
        placed: the graph in its place, ready to be distributed.
    """

    def __init__(
        self, cfg: Config, graph: Graph | None, world: World, weights: list[Tensor], placed: PreparedGraph | None = None
    ):
        self._run = set_up(cfg, world, Meter(world.device), graph, prepared=placed)
        self._runner = StepRunner(self._run, replay_for(cfg.runtime.cuda_graph, world))
        self._numbers = itertools.count(1)
        if weights:
            set_weights(self._run.model, weights)

    def __call__(self) -> Callable[[], float]:
        launched = self._runner(next(self._numbers))
        return lambda: launched.results.read()[0]

    def details(self) -> dict[str, Any]:
        """What the run has decided: its optimizations, its kernel, and whether its epochs are replayed."""
        own = {"kernel": self._run.scheme.kernel_name, "cuda_graph": self._runner.outcome}
        return {"settings": asdict(self._run.optimizations) | {"scheme": self._run.cfg.scheme["name"], **own}, **own}


@torch.no_grad()
def set_weights(model: torch.nn.Module, weights: list[Tensor]) -> None:
    """Put ``weights`` into the matrices of ``model``, or of a stack of matrices, in order, and 0 into its biases."""
    remaining = iter(weights)
    for parameter in model.parameters():
        if parameter.dim() < 2:
            parameter.zero_()
        for matrix in [parameter] if parameter.dim() == 2 else parameter if parameter.dim() == 3 else []:
            matrix.copy_(next(remaining))
    assert next(remaining, None) is None


@dataclass
class Ready:
    """The trainings of this process that are set up, and those that cannot be."""

    methods: list[Method] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    steps: dict[str, LaunchEpoch] = field(default_factory=dict)  # by the label of the method

    def add(self, candidates: Iterable[Method], cfg: BenchConfig, device: torch.device) -> None:
        """Set up what the candidates make, whose ``run`` makes a step. Every rank has the same of ours."""
        made, missing = harness.set_up(candidates, of_ours=FullGNNError)
        for method in made:
            run, about = harness.timed(method.run, device, cfg.at_once), harness.training(method.run)
            self.methods.append(replace(method, run=run, about=about))
            self.steps[method.label] = method.run
        self.missing += missing

    def listed(self) -> tuple[list[Method], list[Missing]]:
        """The methods, without what runs them, and what is missing."""
        return [replace(method, run=None, about=None) for method in self.methods], self.missing

    def run(self, number: int) -> tuple[float, list[float]]:
        """Run a method once; the process takes the time itself."""
        return self.methods[number].run()

    def peak_bytes(self) -> int:
        """The peak memory of the process since the trainings were set up."""
        return peak_process_bytes()

    def profile(self, measurements: list[Measurement], cfg: BenchConfig, device: torch.device) -> None:
        """Add the launches of one epoch to the details, where ``cfg`` asks for them."""
        for measured in measurements:
            if measured.name == cfg.launches and (step := self.steps.get(measured.method.label)):
                launched = profiled(step, device, _PROFILED_EPOCHS)
                measured.details["launches"] = launch_table(launched, _PROFILED_EPOCHS)


def run(cfg: BenchConfig, world: World) -> Results:
    """Time the epochs of all methods; called on every rank."""
    return one_after_the_other(cfg, world) if cfg.made else in_rounds(cfg, world)


def in_rounds(cfg: BenchConfig, world: World) -> Results:
    """Time all methods in the same rounds."""
    graph = from_rank0(lambda: problems.load_graph(cfg))
    problem = problems.as_problem(cfg, graph, world.device) if graph is not None else None
    sizes = broadcast_object((problem.widths, problem.graph.num_users is not None) if problem else None)
    statistics = problem.statistics() if problem else {}
    ready = Ready()
    if world.size > 1 or not cfg.separate:
        ready.add(ours(cfg, world, graph, *sizes), cfg, world.device)
    workers: dict[Worker, list[str]] = {}  # with the labels of their methods
    if world.size > 1 or cfg.separate:
        del problem, graph  # they are made again in the processes
        started = from_rank0(lambda: [worker_with(variables(part, 1), alone, part) for part in parts_alone(cfg)])
        for worker in started or []:
            methods, missing = worker.call(Ready.listed)
            workers[worker] = [method.label for method in methods]
            for number, method in enumerate(methods):
                run = partial(worker.call, Ready.run, number)
                ready.methods.append(replace(method, run=run, about=harness.training(None)))
            # Each process reports the same ones.
            ready.missing += [absent for absent in missing if absent not in ready.missing]
    elif problem is not None:
        ready.add(peers(cfg, problem), cfg, world.device)

    yield Outcome([], ready.missing, statistics)
    forget_peak_process_bytes()
    outcome = harness.compared(cfg, world, ready.methods, cfg.epochs - cfg.warmup)
    peak = max(all_gather_objects(peak_process_bytes()))
    peaks: dict[str, int | None] = dict.fromkeys((method.label for method in ready.methods), peak)
    for worker, labels in workers.items():
        own_peak, _, _ = harness.attempt(partial(worker.call, Ready.peak_bytes), WorkerLost)
        peaks |= dict.fromkeys(labels, own_peak)  # None: the process has ended
        worker.close()
    ready.profile(outcome.measurements, cfg, world.device)
    base = next((measured for measured in outcome.measurements if measured.method.label == measured.baseline), None)
    for measured in outcome.measurements:
        if cfg.separate and (own_peak := peaks[measured.method.label]) is not None:
            measured.details["peak_mb"] = own_peak / 1e6
        measured.details["loss_error"] = harness.loss_error(measured, base) if base else None
    yield outcome


def one_after_the_other(cfg: BenchConfig, world: World) -> Results:
    """Time each method alone, on a look-alike that is made on the device."""
    cases, num_ours = Cases(cfg.limit_s, world.device), len(cfg.presets or presets()) * len(cfg.dropouts)
    made = problems.make_graph(cfg, cases, entry_s=num_ours * _HOST_S_PER_ENTRY)
    yield Outcome(problem=made.facts)
    problem = problems.made_problem(made)
    del made
    first: dict[str, Measurement] = {}  # by the case
    own = replace(cfg, overrides=["scheme.replication=1", "self_loops=false", *cfg.overrides])  # A + I has its loops
    every = [*ours(own, world, None, problem.widths, False, problem.graph), *peers(own, problem)]
    for candidate in sorted(every, key=lambda candidate: candidate.case.get("dropout", 0.0)):
        train, least_s = partial(_alone, candidate, cfg, world, problem), 0.0 if cfg.graph in TOYS else _LEAST_S
        outcome = cases.run(candidate.name, train, candidate.case, least_s, _MOST_S)
        for measured in outcome.measurements:
            base = first.setdefault(str(candidate.case), measured)
            measured.compare_with(base)
            comparable = candidate.kind == "ours" or not any(candidate.case.values())  # peers draw other masks
            measured.details["loss_error"] = harness.loss_error(measured, base) if comparable else None
        yield outcome


def _alone(candidate: Method, cfg: BenchConfig, world: World, problem: problems.Problem) -> Outcome:
    """Set up one training, time its epochs, and count the bytes that a process would hold that runs it alone."""
    device, ready = world.device, Ready()
    # Ours hold copies of their own; the peers read these tensors, which are there before they start.
    shared = 0 if candidate.kind == "ours" else problem.features.nbytes + problem.block.indices.nbytes
    before, _ = device_memory(device)
    ready.add([candidate], cfg, device)
    peaks = {"setup_peak_mb": device_memory(device)[1]}
    measurements, failed = harness.measure(ready.methods, world, cfg.epochs - cfg.warmup, cfg.warmup, cfg.budget_s)
    peaks["peak_mb"] = device_memory(device)[1]
    for measured in measurements if device.type == "cuda" else ():
        measured.details.update({key: (peak - before + shared) / 1e6 for key, peak in peaks.items()})
    ready.profile(measurements, cfg, device)
    return Outcome(measurements, ready.missing + failed)


def device_memory(device: torch.device) -> tuple[int, int]:
    """Bytes of the tensors that are there, and their peak since the last call; 0 on a CPU, which does not count."""
    if device.type != "cuda":
        return 0, 0
    peak = torch.cuda.max_memory_allocated(device)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device), peak


def parts_alone(cfg: BenchConfig) -> list[BenchConfig]:
    """What each process beside the job runs, for each number of threads: all methods, or with ``separate`` one preset,
    or one library."""
    own = cfg.presets if cfg.alone is None else cfg.alone
    parts: list[dict[str, Any]] = [{"presets": own}]
    if cfg.separate:
        parts = [{"presets": [preset], "peers": []} for preset in (presets() if own is None else own)]
        parts += [{"presets": [], "peers": [library]} for library in cfg.peers]
    beside = replace(cfg, nproc=1, alone=None, alone_threads=None)
    counts = cfg.alone_threads or [torch.get_num_threads()]
    return [replace(beside, threads=threads, **part) for threads in counts for part in parts]


def ours(
    cfg: BenchConfig, world: World, graph: Graph | None, widths: list[int], bipartite: bool, own: Graph | None = None
) -> list[Method]:
    """The presets, on all ranks of ``world``; a preset that this number of processes cannot run is missing.

    Args:
        graph: the whole graph on rank 0, None elsewhere.
        widths: of the layers: features, hidden, classes.
        bipartite: whether the nodes are users and items.
        own: a graph that takes the place of ``graph``, in its own order and with self-loops.

    Returns:
        methods whose ``run`` makes the ``LaunchEpoch``, as :func:`peers` does.
    """

    def make(preset: str, dropout: float = 0.0) -> LaunchEpoch:
        run_cfg = preset_config(cfg, preset, widths[1], bipartite, dropout)
        in_order = problems.prepared(own, num_parts(run_cfg.scheme, world.size)) if own else None
        return Epochs(run_cfg, graph, world, problems.first_weights(widths, cfg.seed, cfg.gnn), in_order)

    chosen = itertools.product(dropout_cases(cfg), presets() if cfg.presets is None else cfg.presets)
    return [Method(preset, "ours", partial(make, preset, **case), world.size, case=case) for case, preset in chosen]


def peers(cfg: BenchConfig, problem: problems.Problem) -> list[Method]:
    """The peers of the chosen libraries, on this process."""
    weights, makers = problems.peer_weights(problem, cfg.seed, cfg.gnn), epoch_makers(cfg.gnn)
    by_case = (candidates(makers, cfg.peers, problem, weights, **case) for case in dropout_cases(cfg))
    every = itertools.chain.from_iterable(by_case)
    return [method for method in every if cfg.methods is None or method.name in cfg.methods]


def dropout_cases(cfg: BenchConfig) -> list[dict[str, float]]:
    """The rates of dropout, each as the case of a method; an empty case where there is no dropout."""
    return [{"dropout": rate} for rate in cfg.dropouts] if any(cfg.dropouts) else [{}]


def single_process(cfg: BenchConfig, world: World) -> Ready:
    """Our presets and the peers in a process that was started for them; the graph is in the cache by now."""
    problem, ready = problems.as_problem(cfg, problems.load_graph(cfg), world.device), Ready()
    own = ours(cfg, world, problem.graph, problem.widths, problem.graph.num_users is not None)
    ready.add([*own, *peers(cfg, problem)], cfg, world.device)
    forget_peak_process_bytes()
    return ready


@contextmanager
def alone(cfg: BenchConfig) -> Iterator[Ready]:
    """What a process beside the job holds: a job of one rank, in which our training runs as it always does."""
    with world_of_one(run_config(cfg).runtime) as world:
        yield single_process(cfg, world)
