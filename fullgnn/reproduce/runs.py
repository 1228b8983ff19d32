"""Training epochs for targets: the paper's model on a case, on any number of ranks.

A layout of at most ``nproc`` ranks runs as it would anywhere, and all of its times are measured. Of a larger one every
rank's computation is measured, one rank after another on the one device, and its waiting for data is a model's
(``fullgnn/plan/simulate.py``): only the whole epoch mixes the two, and it is called simulated.
"""

import tempfile
from dataclasses import dataclass

from fullgnn.compose import compose, load_config
from fullgnn.config import Config
from fullgnn.engine.prepare import Preparation
from fullgnn.errors import ConfigError
from fullgnn.overrides import quote
from fullgnn.plan.hardware import Hardware, load_hardware
from fullgnn.plan.simulate import prepare_for, simulate
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import Case
from fullgnn.reproduce.result import Origin
from fullgnn.reproduce.table2 import Layout
from fullgnn.schemes.base import PreparedGraph
from fullgnn.train import start

_TASK = (
    "model.num_layers=2",
    "model.dropout=0",
    "model.input_dropout=0",
    "train.optimizer=adam",
    "train.lr=0.01",
    "train.weight_decay=0",
    "train.eval_every=0",
    "runtime.dtype=float32",
)

Prepared = tuple[PreparedGraph, Preparation]


@dataclass(frozen=True)
class EpochTimes:
    """A training epoch: medians without the first one."""

    spmm_ms: float  # products of the slowest rank, measured
    compute_ms: float  # the slowest rank without its collectives, measured
    epoch_ms: float  # with them
    origin: Origin  # of epoch_ms


def run_overrides(cfg: TargetConfig, case: Case, *choices: str) -> list[str]:
    """The command line of a run of the paper's two-layer GCN on ``case``: Adam, no dropout, evaluated once.

    Args:
        choices: overrides of a run, such as ``experiment=hetu``; they count more than the task.
    """
    cache_dir = "null" if cfg.cache_dir is None else quote(cfg.cache_dir)
    runtime = [f"runtime.device={cfg.device}", f"runtime.threads={cfg.threads}", f"runtime.cache_dir={cache_dir}"]
    own = [f"model.hidden_channels={case.hidden}", f"seed={cfg.seed}", f"train.epochs={num_epochs(cfg, case)}"]
    return [*case.overrides, *own, *_TASK, *runtime, *choices]


def run_config(cfg: TargetConfig, case: Case, *choices: str) -> Config:
    """The configuration of :func:`run_overrides`."""
    return load_config(compose(*run_overrides(cfg, case, *choices)))


def layout_choices(layout: Layout) -> list[str]:
    """The overrides that make a run one of ``layout``."""
    return [f"scheme={layout.scheme}", f"scheme.replication={layout.r}"]


def num_epochs(cfg: TargetConfig, case: Case) -> int:
    """Epochs to run: as asked for, or as many as in the paper at full size, or a few on a shrunk graph."""
    if cfg.epochs is not None:
        return cfg.epochs
    return cfg.paper_epochs if case.real or case.scale == 1 else cfg.few_epochs


def collectives(cfg: TargetConfig, hardware: str, num_ranks: int) -> Hardware | None:
    """The profile whose collectives simulated layouts of up to ``num_ranks`` have; None where all can be measured.

    With ``auto`` it is this machine's with two ranks, or one for each GPU.

    Raises:
        ConfigError: this machine has a single GPU, whose collectives cannot be measured.
    """
    assert cfg.nproc is not None
    if num_ranks <= cfg.nproc:
        return None
    runtime = load_config(compose(f"runtime.device={cfg.device}")).runtime
    runtime.cache_dir = cfg.cache_dir
    found = load_hardware(hardware, runtime, cfg.nproc if cfg.device == "cuda" else max(2, cfg.nproc))
    if not found.links:
        raise ConfigError(f"profile={hardware} is of one rank and has no collectives: give one of conf/hardware/")
    return found


def measure_epoch(
    cfg: TargetConfig,
    case: Case,
    choices: list[str],
    layout: Layout,
    hardware: Hardware | None = None,
    prepared: Prepared | None = None,
) -> EpochTimes:
    """An epoch of a run of ``choices`` on ``layout``.

    Args:
        hardware: what :func:`collectives` returned for a layout of as many ranks.
        prepared: what :func:`prepare` returned for the same layout, order and normalisation.
    """
    assert cfg.nproc is not None
    choices = [*choices, *layout_choices(layout)]
    if 1 < layout.p <= cfg.nproc:
        return _launched(cfg, case, choices, layout.p)
    run_cfg = run_config(cfg, case, *choices)
    found = simulate(run_cfg, layout.p, case.graph, num_epochs(cfg, case), hardware, prepared)
    whole = found.epoch_ms if found.simulated else found.compute_ms
    assert whole is not None, "a layout of several ranks needs a profile"
    return EpochTimes(found.spmm_ms, found.compute_ms, whole, "simulated" if found.simulated else "measured")


def prepare(cfg: TargetConfig, case: Case, choices: list[str], layout: Layout) -> Prepared | None:
    """The ordered graph of a layout, for several runs that differ in nothing that it depends on; None where it is
    not this process that needs it."""
    assert cfg.nproc is not None
    if 1 < layout.p <= cfg.nproc:
        return None
    return prepare_for(run_config(cfg, case, *choices, *layout_choices(layout)), layout.p, case.graph)


def _launched(cfg: TargetConfig, case: Case, choices: list[str], num_ranks: int) -> EpochTimes:
    """All ranks at once, as ``fullgnn.train`` starts them; of the busiest rank."""
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
        own = [f"run_dir={quote(folder)}", f"runtime.nproc={num_ranks}"]
        overrides = [*run_overrides(cfg, case, *choices), *own]
        record = start(load_config(compose(*overrides)), overrides)
    epoch_ms = record.epoch_time_ms["median"]
    return EpochTimes(record.spmm_time_ms, epoch_ms - record.comm_time_ms, epoch_ms, "measured")
