"""The benchmark's command line: its schema here, its values in ``conf/bench.yaml``."""

import typing
from dataclasses import dataclass
from typing import Optional

from omegaconf import MISSING

from fullgnn.bench.workloads import WORKLOADS
from fullgnn.config import Config
from fullgnn.config.compose import compose, load_config
from fullgnn.config.keys import choices, load_keys
from fullgnn.config.overrides import quote
from fullgnn.errors import ConfigError

OPERATIONS = ("spmm", "epoch", "collectives", "reorder")
LIBRARIES = ("torch", "pyg", "dgl")
DEFAULT_PRESET = "default"
"""The preset that is ``conf/config.yaml`` alone, of no experiment."""


@dataclass
class BenchConfig:
    """The keys of ``conf/bench.yaml``, which explains them."""

    op: str = MISSING
    graph: str = MISSING
    order: str = MISSING
    hidden: Optional[int] = MISSING
    seed: int = MISSING
    presets: Optional[list[str]] = MISSING
    alone: Optional[list[str]] = MISSING
    kernels: Optional[list[str]] = MISSING
    orders: Optional[list[str]] = MISSING
    peers: list[str] = MISSING
    baseline: Optional[str] = MISSING
    overrides: list[str] = MISSING
    widths: list[int] = MISSING
    sizes_mb: list[float] = MISSING
    num_parts: int = MISSING
    rounds: int = MISSING
    epochs: int = MISSING
    warmup: int = MISSING
    budget_s: float = MISSING
    nproc: int = MISSING
    threads: Optional[int] = MISSING
    alone_threads: Optional[list[int]] = MISSING
    device: str = MISSING
    backend: str = MISSING
    malloc: str = MISSING
    cache_dir: Optional[str] = MISSING
    out: str = MISSING


_LEAST: dict[str, float] = {
    "hidden": 1,
    "seed": 0,
    "widths": 1,
    "sizes_mb": 1e-3,
    "num_parts": 1,
    "rounds": 1,
    "epochs": 1,
    "warmup": 0,
    "budget_s": 0,
    "nproc": 1,
    "threads": 1,
    "alone_threads": 1,
}


def load_bench(*overrides: str) -> BenchConfig:
    """The configuration that the command line ``overrides`` describe, checked.

    Raises:
        ConfigError: one line naming the key, what is wrong with it and what it may be.
    """
    cfg = load_keys("bench", BenchConfig, list(overrides))
    _check(cfg)
    return cfg


def graphs() -> list[str]:
    return [*WORKLOADS, *choices("dataset")]


def presets() -> list[str]:
    """The named set-ups of ours: the experiments, or the default run where there are none."""
    return choices("experiment") or [DEFAULT_PRESET]


def run_config(cfg: BenchConfig, *overrides: str) -> Config:
    """The configuration of a run of ours on the benchmark's graph, processes and threads."""
    dataset = [] if cfg.graph in WORKLOADS else [f"dataset={cfg.graph}"]
    keys = {key: getattr(cfg, key) for key in ("nproc", "threads", "device", "backend")}
    runtime = [f"runtime.{key}={'null' if value is None else value}" for key, value in keys.items()]
    common = [f"run_dir={quote(cfg.out)}", f"seed={cfg.seed}", "runtime.dtype=float32"]
    return load_config(compose(*dataset, *cfg.overrides, *overrides, *runtime, *common))


def preset_config(cfg: BenchConfig, preset: str, hidden: int) -> Config:
    """The configuration of one preset, doing the benchmark's task: Adam, learning rate .01, no dropout, no decay.

    A key of the preset's own counts, also where it changes the task: ``loss_error`` then shows it.
    """
    name, *own = preset.split()
    experiment = [] if name == DEFAULT_PRESET else [f"experiment={name}"]
    task = [
        f"model.hidden_channels={hidden}",
        "model.num_layers=2",
        "model.dropout=0",
        "model.input_dropout=0",
        "train.optimizer=adam",
        "train.lr=0.01",
        "train.weight_decay=0",
    ]
    return run_config(cfg, *experiment, *task, *own)


def _check(cfg: BenchConfig) -> None:
    single = {"op": OPERATIONS, "graph": graphs(), "order": choices("reorder"), "malloc": ("tuned", "default")}
    single |= {"device": ("cpu", "cuda", "auto"), "backend": ("gloo", "nccl", "auto")}
    several = {"kernels": choices("kernel"), "orders": choices("reorder"), "peers": LIBRARIES}
    for key, known in single.items():
        _check_choice(key, getattr(cfg, key), known)
    for key, known in several.items():
        for value in getattr(cfg, key) or ():
            _check_choice(key, value, known)
    for key in ("presets", "alone"):
        for preset in getattr(cfg, key) or ():
            _check_choice(key, (preset.split() or [""])[0], [*presets(), DEFAULT_PRESET])
    for preset in cfg.alone or ():
        _check_choice("alone", preset, cfg.presets or presets())
    for key, least in _LEAST.items():
        value = getattr(cfg, key)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and not number >= least:
                raise ConfigError(f"{key}={number} is out of range: it must be at least {least}")
    for key in ("widths", "sizes_mb", "presets", "kernels", "orders", "alone_threads"):
        if getattr(cfg, key) == []:
            raise ConfigError(f"{key}=[] leaves nothing to measure: give one or more")
    for key, value in vars(cfg).items():
        if isinstance(value, list) and len(set(value)) < len(value):
            raise ConfigError(f"{key} names something twice: leave one out")
    if cfg.op == "epoch" and cfg.epochs <= cfg.warmup:
        raise ConfigError(f"epochs={cfg.epochs} are all warm-up: give more than warmup={cfg.warmup}")
    if cfg.op == "collectives" and cfg.nproc < 2:
        raise ConfigError("op=collectives moves data between processes: give nproc=2 or more")
    if cfg.op in ("spmm", "reorder") and cfg.nproc > 1:
        raise ConfigError(f"op={cfg.op} runs in one process: leave out nproc={cfg.nproc}")
    if cfg.nproc == 1 and (cfg.alone or cfg.alone_threads):
        raise ConfigError("alone and alone_threads are for nproc of 2 or more: leave them out, or give nproc=2")


def _check_choice(key: str, value: str, known: typing.Iterable[str]) -> None:
    if value not in known:
        raise ConfigError(f"{key}={value} is not known: choose one of {', '.join(dict.fromkeys(known))}")
