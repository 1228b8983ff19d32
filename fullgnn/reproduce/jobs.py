"""Training of ours on a given graph, at the task that every method of a table has."""

import functools
import gc
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module

from omegaconf import MISSING

from fullgnn.api import train_graph
from fullgnn.compose import compose, load_config
from fullgnn.config import Config, RuntimeConfig
from fullgnn.engine.prepare import Preparation
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.overrides import quote
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


@dataclass
class TrainingConfig(TargetConfig):
    """The keys of targets that train."""

    few_epochs: int = MISSING
    """With ``epochs=null`` on a shrunk graph."""
    full_epochs: int = MISSING
    """With ``epochs=null`` at full size, as in the paper."""

    def epochs_on(self, case: Case) -> int:
        """How many to train on the graph of ``case``.

        Raises:
            ConfigError: 1, which leaves none to count after the first.
        """
        epochs = self.epochs or (self.full_epochs if case.real or case.scale == 1 else self.few_epochs)
        if epochs < 2:
            raise ConfigError("epochs=1 leaves nothing to count, since the first warms up: give 2 or more")
        return epochs


@dataclass
class Layout:
    """A scheme on ``p`` ranks with ``r`` replicas."""

    scheme: str = MISSING
    p: int = MISSING
    r: int = MISSING

    @property
    def num_parts(self) -> int:
        return self.p // self.r

    @property
    def name(self) -> str:
        return f"{self.scheme.upper()} p={self.p}" + (f" r={self.r}" if self.r > 1 else "")

    def overrides(self) -> list[str]:
        """Those of a run with this layout, whatever its experiment has."""
        return [f"scheme={self.scheme}", f"scheme.replication={self.r}"]


@dataclass(frozen=True)
class JobTimes:
    """An epoch of a job and its sparse products, in ms, by rank; of a job of real processes its busiest rank alone."""

    origin: Origin  # of the epoch; simulated: a rank's computation is measured by itself, its communication modelled
    spmm_ms: list[float]  # measured
    epoch_ms: list[float]
    comm_ms: list[float]  # the share of the model in the epoch

    def cells(self) -> dict[str, Cell]:
        """``SpMM`` and ``epoch`` of the slowest rank."""
        spmm, epoch = Cell(max(self.spmm_ms), unit="ms"), Cell(max(self.epoch_ms), unit="ms", origin=self.origin)
        return {"SpMM": spmm, "epoch": epoch}


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
    hardware: Hardware,
) -> JobTimes:
    """Train on ``world_size`` ranks: in real processes if ``cfg.nproc`` is that many, else by simulation.

    Args:
        own: as in :func:`overrides`.
        prepared: ``graph`` as ``prepare_for`` returns it.
    """
    assert cfg.nproc is not None
    if world_size > cfg.nproc:
        run = simulate(run_config(cfg, case.hidden, *own), world_size, None, epochs, hardware, prepared)
        assert run.comm_ms is not None
        epoch_ms = [rank.time_ms["epoch"] + comm_ms for rank, comm_ms in zip(run.ranks, run.comm_ms)]
        return JobTimes("simulated", [rank.time_ms["spmm"] for rank in run.ranks], epoch_ms, run.comm_ms)
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
        training = [f"train.epochs={epochs}", "train.eval_every=0", f"run_dir={quote(folder)}"]
        runtime = [f"runtime.nproc={world_size}", "runtime.cuda_graph=never"]  # a replayed epoch has no phases
        record = train_graph(graph, *overrides(cfg, case.hidden, *own), *training, *runtime)
    return JobTimes("measured", [record.spmm_time_ms], [record.epoch_time_ms["median"]], [0.0])


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
