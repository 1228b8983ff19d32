"""Training of ours on a given graph, at the task that every method of a table has."""

import functools
import gc
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module

from fullgnn.api import train_graph
from fullgnn.config import Config, RuntimeConfig
from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import quote
from fullgnn.engine.prepare import Preparation
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.plan.hardware import Hardware, load_hardware
from fullgnn.plan.simulate import simulate
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import Case
from fullgnn.reproduce.result import Cell, Origin
from fullgnn.schemes.base import PreparedGraph

_TASK = ("model=gcn", "model.num_layers=2", "model.dropout=0", "model.input_dropout=0", "train.weight_decay=0")
"""Without dropout, so that losses can be compared; Adam with learning rate 0.01, as all runs."""

THIN = (
    "The features of a look-alike are fewer by its degree_scale, so that dense products keep their share of an epoch "
    "beside the sparse ones."
)


@dataclass(frozen=True)
class JobTimes:
    """An epoch of a job and its sparse products, in ms, by rank; of a job of real processes its busiest rank alone."""

    origin: Origin  # of the epoch; simulated: a rank's computation is measured by itself, its communication modelled
    spmm_ms: list[float]  # measured
    epoch_ms: list[float]
    comm_ms: list[float]  # waiting for data, in the epoch: by the model where that is simulated

    @property
    def compute_ms(self) -> float:
        """The slowest rank without its waiting: measured."""
        return max(epoch_ms - comm_ms for epoch_ms, comm_ms in zip(self.epoch_ms, self.comm_ms))

    def cells(self) -> dict[str, Cell]:
        """``SpMM``, ``computation`` (the epoch without its waiting) and ``epoch`` of the slowest rank."""
        return {
            "SpMM": Cell(max(self.spmm_ms), unit="ms"),
            "computation": Cell(self.compute_ms, unit="ms"),
            "epoch": Cell(max(self.epoch_ms), unit="ms", origin=self.origin),
        }


def fastest(rounds: Sequence[JobTimes]) -> JobTimes:
    """Each rank's least times over ``rounds`` of one job: what else the machine did only adds to them."""

    def least(times: Iterable[list[float]]) -> list[float]:
        return list(map(min, zip(*times)))

    return JobTimes(
        rounds[0].origin,
        least(one.spmm_ms for one in rounds),
        least(one.epoch_ms for one in rounds),
        least(one.comm_ms for one in rounds),
    )


def num_epochs(cfg: TargetConfig, case: Case) -> int:
    """Epochs to run: as asked for, or as many as in the paper at full size, or a few on a shrunk graph."""
    if cfg.epochs is not None:
        return cfg.epochs
    return cfg.paper_epochs if case.real or case.scale == 1 else cfg.few_epochs


def thin(case: Case) -> Case:
    """``case`` with the first of its features, fewer by as much as its mean degree was scaled; see ``THIN``."""
    num_features = max(1, round(case.graph.num_features * case.degree_scale))
    if num_features == case.graph.num_features:
        return case
    return replace(case, graph=replace(case.graph, features=case.graph.features[:, :num_features].copy()))


def overrides(cfg: TargetConfig, hidden: int, *own: str) -> list[str]:
    """Those of a run of ours for a target: the task, and where it runs; an experiment in ``own`` comes below both."""
    runtime = [f"runtime.device={cfg.device}", f"runtime.threads={cfg.threads}"]
    runtime.append(f"runtime.cache_dir={'null' if cfg.cache_dir is None else quote(cfg.cache_dir)}")
    return [*_TASK, f"model.hidden_channels={hidden}", f"seed={cfg.seed}", *runtime, *own]


def run_config(cfg: TargetConfig, hidden: int, *own: str) -> Config:
    """The configuration of :func:`overrides`; not to be written to."""
    return _loaded(*overrides(cfg, hidden, *own))


@functools.cache
def _loaded(*given: str) -> Config:
    """Composing takes as long as an epoch of a small graph, and a target asks for the same again and again."""
    return load_config(compose(*given))


def load_links(cfg: TargetConfig, name: str) -> Hardware:
    """The profile ``name``, whose collectives a simulated job has.

    Raises:
        ConfigError: ``auto`` on a machine of one GPU, which has none to measure.
    """
    num_gpus = cfg.nproc if cfg.device == "cuda" else None
    if name == "auto" and num_gpus == 1:
        raise ConfigError("links=auto: one GPU has none to measure: give those of a profile, as links=h200x8")
    runtime: RuntimeConfig = run_config(cfg, 1).runtime
    return load_hardware(name, runtime, num_gpus or 2)


def time_job(
    cfg: TargetConfig,
    own: list[str],
    case: Case,
    world_size: int,
    epochs: int,
    prepared: tuple[PreparedGraph, Preparation],
    graph: Graph,
    hardware: Hardware | None = None,
) -> JobTimes:
    """Train on ``world_size`` ranks: one in this process, several in real ones if ``cfg.nproc`` is that many, else by
    simulation.

    Args:
        own: as in :func:`overrides`.
        prepared: ``graph`` as ``prepare_for`` returns it.
        hardware: whose collectives simulated ranks have; they need one.
    """
    assert cfg.nproc is not None
    if world_size > cfg.nproc or world_size == 1:
        run = simulate(run_config(cfg, case.hidden, *own), world_size, None, epochs, hardware, prepared)
        comm_ms = run.comm_ms or [0.0]
        epoch_ms = [rank.time_ms["epoch"] + waiting for rank, waiting in zip(run.ranks, comm_ms, strict=True)]
        origin: Origin = "simulated" if run.simulated else "measured"
        return JobTimes(origin, [rank.time_ms["spmm"] for rank in run.ranks], epoch_ms, comm_ms)
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
        training = [f"train.epochs={epochs}", "train.eval_every=0", f"run_dir={quote(folder)}"]
        runtime = [f"runtime.nproc={world_size}", "runtime.cuda_graph=never"]  # a replayed epoch has no phases
        record = train_graph(graph, *overrides(cfg, case.hidden, *own), *training, *runtime)
    return JobTimes("measured", [record.spmm_time_ms], [record.epoch_time_ms["median"]], [record.comm_time_ms])


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Let the collector pass over what exists by now.

    ``simulate`` collects after every rank; beside the objects of imported libraries that takes as long as an epoch.
    """
    import_module("torch._dynamo")  # most of them, and the first optimizer would import it
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
