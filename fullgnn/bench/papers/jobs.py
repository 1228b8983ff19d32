"""Training runs of ours on a given graph, all at the same task."""

import functools
import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fullgnn import train, train_minibatch
from fullgnn.api import train_graph
from fullgnn.bench.papers.config import JobShape, TargetConfig
from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.result import Cell, Labels, Origin
from fullgnn.config import Config
from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import quote
from fullgnn.costs.hardware import Hardware, load_hardware
from fullgnn.costs.simulate import prepare_for, simulate
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.graph import Graph
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.storage.folder import temporary_folder
from fullgnn.storage.record import RunRecord, read_epochs

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

    def cells(self, *labels: str) -> dict[Labels, Cell]:
        """Return ``SPMM``, ``COMPUTATION`` and ``EPOCH`` of the slowest rank, for rows with these and ``labels``."""
        computation = [epoch_ms - comm_ms for epoch_ms, comm_ms in zip(self.epoch_ms, self.comm_ms)]
        return {
            (*labels, SPMM): Cell(max(self.spmm_ms), unit="ms"),
            (*labels, COMPUTATION): Cell(max(computation), unit="ms"),
            (*labels, EPOCH): Cell(max(self.epoch_ms), unit="ms", origin=self.origin),
        }


def fastest(rounds: Sequence[JobTimes | str]) -> JobTimes | str:
    """Take the least times of each rank over ``rounds`` of one job: other work of the machine only adds to them.

    A text that says why there are no times stays.
    """
    times = [one for one in rounds if isinstance(one, JobTimes)]
    if not times:
        return rounds[0]
    spmm_ms, epoch_ms, comm_ms = np.min([(one.spmm_ms, one.epoch_ms, one.comm_ms) for one in times], axis=0).tolist()
    return JobTimes(times[0].origin, spmm_ms, epoch_ms, comm_ms)


def num_epochs(cfg: TargetConfig, case: Case) -> int:
    """Return ``cfg.epochs`` if given, otherwise the paper's number at full size and a few on a shrunk graph."""
    return cfg.epochs or (cfg.paper_epochs if case.real or case.scale == 1 else cfg.few_epochs)


def thin(case: Case) -> Case:
    """Keep only the first features of ``case``: their number is multiplied by ``degree_scale``."""
    num_features = max(1, round(case.graph.num_features * case.degree_scale))
    features = case.graph.features[:, :num_features]
    if isinstance(features, np.ndarray):
        features = np.ascontiguousarray(features)  # no copy if these are all
    return replace(case, graph=replace(case.graph, features=features))


def overrides(cfg: TargetConfig, hidden: int, *own: str) -> list[str]:
    """Join the task, where a run computes, and ``own``; an experiment in ``own`` ranks below the task."""
    runtime = [f"runtime.device={cfg.device}", f"runtime.threads={cfg.threads}"]
    runtime.append(f"runtime.cache_dir={'null' if cfg.cache_dir is None else quote(cfg.cache_dir)}")
    return [*_TASK, f"model.hidden_channels={hidden}", f"seed={cfg.seed}", *runtime, *own]


def run_config(cfg: TargetConfig, hidden: int, *own: str) -> Config:
    """Compose the configuration of :func:`overrides`, which callers must not change."""
    return _loaded(*overrides(cfg, hidden, *own))


@functools.cache
def _loaded(*given: str) -> Config:
    """Composing takes as long as an epoch of a small graph, and a target asks for the same again and again."""
    return load_config(compose(*given))


def load_links(cfg: TargetConfig, name: str, shapes: Iterable[JobShape]) -> Hardware | None:
    """Load the profile ``name``, whose collectives simulated jobs have; None if all ``shapes`` have one rank.

    Raises:
        ConfigError: ``auto`` on a machine of one GPU, which has no links to measure.
    """
    if all(shape.p == 1 for shape in shapes):
        return None
    num_gpus = cfg.nproc if cfg.device == "cuda" else None
    if name == "auto" and num_gpus == 1:
        raise ConfigError("links=auto: one GPU has none to measure: give those of a profile, as links=h200x8")
    return load_hardware(name, run_config(cfg, 1).runtime, num_gpus or 2)


def links_notes(cfg: TargetConfig, links: Hardware | None) -> list[str]:
    """Explain how the epochs of simulated jobs come about, if there are any."""
    return [] if links is None else [cfg.texts["simulated"].format(nproc=cfg.nproc, links=links)]


def prepare_job(
    cfg: TargetConfig, case: Case, shape: JobShape, own: Sequence[str], exact: bool = False
) -> PreparedGraph:
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
    cfg: TargetConfig,
    case: Case,
    shape: JobShape,
    own: Sequence[str],
    links: Hardware | None = None,
    prepared: PreparedGraph | None = None,
) -> JobTimes:
    """Train on the ranks of ``shape``: one rank runs in this process; several run as real processes if ``cfg.nproc``
    is that many, otherwise they are simulated.

    Args:
        own: overrides of the run.
        links: whose collectives simulated ranks have; None if there are none.
        prepared: ``case`` as :func:`prepare_job` returns it; None: the job prepares it.
    """
    assert cfg.nproc is not None
    own, epochs = [*own, *shape.overrides()], num_epochs(cfg, case)
    if 1 < shape.p <= cfg.nproc:
        # A replayed epoch has no phases.
        training = [f"train.epochs={epochs}", "train.eval_every=0", "runtime.cuda_graph=never"]
        record, _ = train_processes(cfg, case.graph, case.hidden, shape.p, *own, *training)
        return JobTimes("measured", [record.spmm_time_ms], [record.epoch_time_ms["median"]], [record.comm_time_ms])
    config = run_config(cfg, case.hidden, *own)
    run = simulate(config, shape.p, prepared or prepare_for(config, shape.p, case.graph), epochs, links)
    comm_ms = run.comm_ms or [0.0]
    epoch_ms = [rank.time_ms["epoch"] + waiting for rank, waiting in zip(run.ranks, comm_ms, strict=True)]
    origin: Origin = "simulated" if run.simulated else "measured"
    return JobTimes(origin, [rank.time_ms["spmm"] for rank in run.ranks], epoch_ms, comm_ms)


def train_processes(
    cfg: TargetConfig, graph: Graph, hidden: int, nproc: int, *own: str
) -> tuple[RunRecord, list[dict[str, Any]]]:
    """Train on ``nproc`` real processes of this machine; return the record and the lines of ``epochs.jsonl``."""
    with temporary_folder() as folder:
        runtime = [f"runtime.nproc={nproc}", f"run_dir={quote(str(folder))}"]
        record = train_graph(graph, *overrides(cfg, hidden, *own), *runtime)
        return record, read_epochs(folder)[0]


def train_by_command(overrides: Sequence[str], sampled: bool) -> tuple[RunRecord, list[dict[str, Any]]]:
    """Train as the command does, by batches or full-batch; return the record and the lines of ``epochs.jsonl``."""
    with temporary_folder() as folder:
        given = [*overrides, f"run_dir={quote(str(folder / 'run'))}"]
        if sampled:
            record = train_minibatch.start(load_config(compose(*given, name="minibatch")), given)
        else:
            record = train.start(load_config(compose(*given)), given)
        return record, read_epochs(folder / "run")[0]


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
