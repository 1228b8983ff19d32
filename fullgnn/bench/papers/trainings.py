"""Trainings: what is known of one that has ended, epoch by epoch; by the command in processes of its own, in this
process, and jobs that are measured or simulated."""

import gc
import logging
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, cast

import numpy as np

from fullgnn import train as train_full_batch
from fullgnn import train_minibatch
from fullgnn.bench.papers.config import JobShape, Keys
from fullgnn.bench.papers.graphs import GraphCase, composed_once, configured, in_file
from fullgnn.bench.papers.result import Cell, Curve, Origin
from fullgnn.codecs import NO_CONTEXT, CodecContext
from fullgnn.config import Config
from fullgnn.config.overrides import quote
from fullgnn.costs.hardware import Hardware, load_hardware
from fullgnn.costs.simulate import prepare_for, simulate
from fullgnn.distributed import world_of_one
from fullgnn.engine.fit import FitResult, fit
from fullgnn.engine.run import Run, set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.graph import Graph
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.source import Preparation
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.folder import temporary_folder
from fullgnn.storage.record import RunRecord, read_epochs
from fullgnn.telemetry.meter import Meter

NEARLY = 0.99
"""The accuracy whose epoch is told is this part of the one that every run reaches at its best."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a training."""

    epoch: int
    seconds: float  # of training up to here: all epochs from the first one, without the evaluations
    since_last: float  # seconds of training since the evaluation before, or since the start
    accuracy: float


@dataclass(frozen=True)
class TrainingCurve:
    """One training that has ended."""

    accuracy: Sequence[float | None]  # after each epoch; None, or no number: this epoch has no evaluation
    seconds: Sequence[float]  # of each epoch, without its evaluation
    setup_s: float = 0.0  # before the first epoch
    loss: Sequence[float] = ()  # before each epoch's update
    epoch_ms: float = 0.0  # the median, without the first epoch, of the busiest rank
    steps: int = 1  # updates of an epoch

    @property
    def evaluations(self) -> list[Evaluation]:
        """The epochs whose accuracy is a number."""
        evaluations, last = list[Evaluation](), 0.0
        for epoch, (seconds, accuracy) in enumerate(zip(accumulate(self.seconds), self.accuracy), 1):
            if accuracy is not None and math.isfinite(accuracy):
                evaluations.append(Evaluation(epoch, seconds, seconds - last, accuracy))
                last = seconds
        return evaluations

    @property
    def accuracies(self) -> list[float]:
        """The accuracies of the ``evaluations``, in their order."""
        return [evaluation.accuracy for evaluation in self.evaluations]

    @property
    def best(self) -> float:
        """The largest accuracy; there is at least one evaluation."""
        return max(self.accuracies)

    def reaching(self, accuracy: float) -> Evaluation | None:
        """The first evaluation with this ``accuracy`` or more; None if there is none."""
        return next((evaluation for evaluation in self.evaluations if evaluation.accuracy >= accuracy), None)

    def seconds_to_loss(self, loss: float) -> float | None:
        """When the first step has this ``loss`` or less, as ``after_first`` has it; None if no step has it."""
        return next((seconds for seconds, own in zip(self.after_first, self.loss) if own <= loss), None)

    @property
    def after_first(self) -> list[float]:
        """Seconds at the end of each epoch, from the end of the first: that allocates, compiles and connects."""
        return list(accumulate(self.seconds[1:], initial=0.0))


def mean_curve(name: str, curves: Sequence[Sequence[float]]) -> Curve:
    """The mean of the ``curves`` of several runs after each epoch that all of them have."""
    means = list(map(statistics.fmean, zip(*curves)))
    return Curve(name, [float(epoch) for epoch in range(1, len(means) + 1)], means)


@dataclass(frozen=True)
class FinishedRun:
    """A training that has ended."""

    record: RunRecord
    epochs: list[dict[str, Any]]  # the lines of ``epochs.jsonl``

    def curve(self, metric: str, scale: float = 1.0) -> TrainingCurve:
        """The training epoch by epoch, with the accuracy that is its ``metric``, times ``scale``."""
        accuracy = [None if (value := epoch.get(metric)) is None else scale * value for epoch in self.epochs]
        seconds, losses = zip(*((epoch["time_ms"]["epoch"] / 1e3, epoch["loss"]) for epoch in self.epochs))
        steps = 1 if self.record.sampling is None else self.record.sampling["num_batches"]
        epoch_ms = self.record.epoch_time_ms["median"]
        return TrainingCurve(accuracy, seconds, self.record.setup_time_s, losses, epoch_ms, steps)


def place(cfg: Keys, num_ranks: int, seed: int, threads: int | None = None) -> list[str]:
    """Overrides: where a training runs, and what it draws.

    Args:
        threads: of each rank; None: the ranks divide the threads of the target among them.
    """
    threads = threads or max(1, (cfg.threads or 1) * cfg.most_ranks // num_ranks)
    runtime = [f"runtime.nproc={num_ranks}", f"runtime.threads={threads}", f"runtime.device={cfg.device}"]
    return [*runtime, f"seed={seed}"]


def listed(items: Iterable[object]) -> str:
    """A list, as the value of an override has it."""
    return f"[{','.join(map(str, items))}]"


def train(overrides: Sequence[str], sampled: bool, graph: Graph | None = None) -> FinishedRun:
    """Train by the command, by batches or full-batch.

    Args:
        graph: None: the one that ``overrides`` choose.
    """
    with temporary_folder() as folder:
        own = [*overrides, f"run_dir={quote(str(folder / 'run'))}"]
        if graph is not None:
            graph.save(folder / "graph.npz")
            own += in_file(folder / "graph.npz")
        start, name = (train_minibatch.start, "minibatch") if sampled else (train_full_batch.start, "config")
        record = start(configured(*own, name=name), own)
        return FinishedRun(record, read_epochs(folder / "run")[0])


@contextmanager
def quiet() -> Iterator[None]:
    """Log warnings only: a target has many trainings, and a line for each of them."""
    logger = logging.getLogger("fullgnn")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def run_here(
    overrides: Sequence[str], graph: Graph | PreparedGraph, context: CodecContext = NO_CONTEXT
) -> Iterator[Run]:
    """A full-batch run that is set up in this process.

    Args:
        graph: if it is prepared, it is taken as it is.
        context: what the codec has learnt.
    """
    config = configured(*overrides)
    with quiet(), world_of_one(config.runtime) as world:
        if isinstance(graph, Graph):
            graph = Preparation(config, 1, graph, codec_context=context).in_memory()
        yield set_up(config, world, Meter(world.device), prepared=graph)


def fit_here(
    overrides: Sequence[str], graph: Graph | PreparedGraph, sampled: bool = False, context: CodecContext = NO_CONTEXT
) -> FitResult:
    """Train in this process, where hundreds of trainings would wait for theirs to start; see ``run_here``."""
    if not sampled:
        with run_here(overrides, graph, context) as run:
            return fit(StepRunner(run))
    config = configured(*overrides, name="minibatch")
    with quiet(), world_of_one(config.runtime) as world:
        return fit(set_up_sampled(config, world, Meter(world.device), cast(Graph, graph)))


def epoch_s(seconds: Sequence[float]) -> float:
    """Seconds of an epoch: the median over those after the first, which compiles."""
    return statistics.median(seconds[1:] or seconds)


_TASK = ("model=gcn", "model.num_layers=2", "model.dropout=0", "model.input_dropout=0", "optimizer.weight_decay=0")
"""Without dropout, so that losses can be compared; Adam with learning rate 0.01, the default of every run."""

SPMM, COMPUTATION, EPOCH = "SpMM", "computation", "epoch"
"""What is timed of a job, always of its slowest rank; the computation is the epoch without waiting for data."""

ONE_RANK = JobShape("1d", 1, 1)


@dataclass(frozen=True)
class JobTimes:
    """Milliseconds of an epoch, by rank; a job of real processes has those of its busiest rank alone."""

    origin: Origin  # of the epoch; simulated: the computation of each rank is measured, its communication modelled
    spmm_ms: list[float]  # sparse products, measured
    epoch_ms: list[float]
    comm_ms: list[float]  # waiting for data, part of the epoch; by the model where the epoch is simulated

    def cell(self, of: str) -> Cell:
        """``SPMM``, ``COMPUTATION`` or ``EPOCH`` of the slowest rank."""
        if of == EPOCH:
            return Cell(max(self.epoch_ms), unit="ms", origin=self.origin)
        computation = [epoch_ms - comm_ms for epoch_ms, comm_ms in zip(self.epoch_ms, self.comm_ms)]
        return Cell(max(self.spmm_ms if of == SPMM else computation), unit="ms")


TimesOrReason = JobTimes | str
"""The times of a job, or why it has none."""


def fastest(rounds: Sequence[TimesOrReason]) -> TimesOrReason:
    """Take the least times of each rank over ``rounds`` of one job: other work of the machine only adds to them."""
    times = [job for job in rounds if isinstance(job, JobTimes)]
    if not times:
        return rounds[0]
    spmm_ms, epoch_ms, comm_ms = np.min([(job.spmm_ms, job.epoch_ms, job.comm_ms) for job in times], axis=0).tolist()
    return JobTimes(times[0].origin, spmm_ms, epoch_ms, comm_ms)


def num_epochs(cfg: Keys, case: GraphCase) -> int:
    """Return ``cfg.epochs`` if given, otherwise the paper's number at full size and a few on a shrunk graph."""
    return cfg.epochs or (cfg.paper_epochs if case.real or case.scale == 1 else cfg.few_epochs)


def overrides(cfg: Keys, hidden: int, *own: str) -> list[str]:
    """Join the task, where a run computes, and ``own``; an experiment in ``own`` ranks below the task."""
    cache_dir = "null" if cfg.cache_dir is None else quote(cfg.cache_dir)
    runtime = [f"runtime.device={cfg.device}", f"runtime.threads={cfg.threads}", f"runtime.cache_dir={cache_dir}"]
    return [*_TASK, f"model.hidden_channels={hidden}", f"seed={cfg.seed}", *runtime, *own]


def run_config(cfg: Keys, hidden: int, *own: str) -> Config:
    """Compose the configuration of :func:`overrides`, which callers must not change."""
    return composed_once(*overrides(cfg, hidden, *own))


_PROFILES: dict[tuple[object, ...], Hardware] = {}
"""What this process has loaded or measured: every graph of a target has the same links."""


def load_links(cfg: Keys, shapes: Iterable[JobShape]) -> Hardware | None:
    """Load the profile ``cfg.links``, whose collectives simulated jobs have; None if all ``shapes`` have one rank.

    Raises:
        ConfigError: ``auto`` on a machine of one GPU, which has no links to measure.
    """
    if all(shape.p == 1 for shape in shapes):
        return None
    num_gpus = cfg.nproc if cfg.device == "cuda" else None
    if cfg.links == "auto" and num_gpus == 1:
        raise ConfigError("links=auto: one GPU has none to measure: give those of a profile, as links=h200x8")
    known = cfg.links, num_gpus, cfg.device, cfg.threads
    if known not in _PROFILES:
        _PROFILES[known] = load_hardware(cfg.links, run_config(cfg, 1).runtime, num_gpus or 2)
    return _PROFILES[known]


def prepare_job(cfg: Keys, case: GraphCase, shape: JobShape, own: Sequence[str], exact: bool = False) -> PreparedGraph:
    """Prepare ``case`` for a job with the overrides ``own``; jobs with the same block rows and order share the result.

    Args:
        exact: refuse the order that takes the place of METIS where METIS is not available.

    Raises:
        UnsupportedError: METIS is not available, and ``exact`` is True.
    """
    run = run_config(cfg, case.hidden, *own, *shape.overrides())
    prepared = prepare_for(run, shape.p, case.graph)
    asked, used = run.reorder.name, prepared.facts.methods.reorder
    if exact and used != asked:
        raise UnsupportedError(f"reorder={asked} is not available here, {used} took its place: pip install pymetis")
    return prepared


def time_job(
    cfg: Keys, case: GraphCase, shape: JobShape, own: Sequence[str], prepared: PreparedGraph | None = None
) -> JobTimes:
    """Train on the ranks of ``shape``: one rank runs in this process; several run as real processes if ``cfg.nproc``
    is that many, otherwise they are simulated.

    Args:
        own: overrides of the run.
        prepared: ``case`` as :func:`prepare_job` returns it; None: the job prepares it.
    """
    own, epochs = [*own, *shape.overrides()], num_epochs(cfg, case)
    if 1 < shape.p <= cfg.most_ranks:
        # A replayed epoch has no phases.
        own += [f"train.epochs={epochs}", "train.eval_every=0", "runtime.cuda_graph=never", f"runtime.nproc={shape.p}"]
        record = train(overrides(cfg, case.hidden, *own), sampled=False, graph=case.graph).record
        return JobTimes("measured", [record.spmm_time_ms], [record.epoch_time_ms["median"]], [record.comm_time_ms])
    config = run_config(cfg, case.hidden, *own)
    prepared, links = prepared or prepare_for(config, shape.p, case.graph), load_links(cfg, [shape])
    assert links is not None or shape.p == 1, "simulated ranks wait for data"
    ranks = simulate(config, shape.p, prepared, epochs, links)
    spmm_ms, comm_ms = ([rank.time_ms[of] for rank in ranks] for of in ("spmm", "comm"))
    epoch_ms = [rank.time_ms["epoch"] + rank.time_ms["comm"] for rank in ranks]
    return JobTimes("simulated" if shape.p > 1 else "measured", spmm_ms, epoch_ms, comm_ms)


@contextmanager
def measuring(cfg: Any) -> Iterator[Any]:
    """Give ``cfg`` a cache for orders, so that METIS runs once a graph, and make epochs of this process repeatable.

    ``simulate`` runs the garbage collector after every rank. The collector passes over what exists by now: the objects
    of imported libraries would make it take as long as an epoch.
    """
    gc.freeze()
    try:
        with temporary_folder() as folder:
            yield cfg if cfg.cache_dir else replace(cfg, cache_dir=str(folder))
    finally:
        gc.unfreeze()
