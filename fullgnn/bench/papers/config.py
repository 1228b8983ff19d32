"""The command line of the reproduction: the schema of all targets here, the values in ``conf/``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Optional

import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import MISSING

from fullgnn.config import RuntimeConfig, conf_dir
from fullgnn.config.explain import explain
from fullgnn.config.keys import check_choices, check_minima, load_keys
from fullgnn.distributed.mesh import default_nproc, num_threads
from fullgnn.errors import ConfigError

ALL = "all"
_FOLDER = "experiment/reproduce"
_ACCURACY = ("sp_table2", "sp_table3", "sp_table4", "sp_fig5", "sp_fig6", "sp_mlp", "sp_codecs")
_MODULES = {
    "pagraph": "pagraph",
    "sp": "sparsification",
    **dict.fromkeys(_ACCURACY, "sparsification.accuracy_cases"),
}
"""Modules of several targets, by the name of the target or by what it begins with."""
PROSE = ("notes", "notes_on_cpu", "texts")
"""The keys of sentences, which records leave out of the configuration."""
_EPOCHS = ("epochs", "few_epochs", "paper_epochs")  # of which the first warms up and is not counted
_MINIMA = (
    dict.fromkeys(_EPOCHS, 2) | dict.fromkeys(("nproc", "threads", "rounds", "paper_cache_bytes"), 1) | {"seed": 0}
)


@dataclass
class PaperGraph:
    """A graph of the paper, which ``conf/dataset/<key>.yaml`` imitates."""

    title: str = MISSING
    file: str = MISSING
    """Name of the real graph's file in ``data_root``, without .npz."""
    hidden: int = MISSING
    """Width of the hidden layer."""


@dataclass
class Size:
    """How far a look-alike is shrunk by default."""

    scale: float = MISSING
    """Multiplies the number of nodes."""
    density: Optional[float] = None
    """Upper limit of nnz / n^2 over the real graph's; the mean degree falls with it. null: the real mean degree."""


@dataclass
class JobShape:
    """A scheme on ``p`` ranks with ``r`` replicas; the keys ``layout`` and ``layouts`` hold them."""

    scheme: str = MISSING
    p: int = MISSING
    r: int = MISSING

    @property
    def num_parts(self) -> int:
        """Number of block rows."""
        return self.p // self.r

    @property
    def name(self) -> str:
        return f"{self.scheme.upper()} p={self.p}" + (f" r={self.r}" if self.r > 1 else "")

    def overrides(self) -> list[str]:
        """Return the overrides of a run of this shape, which win over those of an experiment."""
        return [f"scheme={self.scheme}", f"scheme.replication={self.r}"]


@dataclass
class TargetConfig:
    """The keys of ``conf/reproduce.yaml``, which explains them; a target adds its own."""

    title: str = MISSING
    datasets: Optional[list[str]] = MISSING
    scale: Optional[float] = MISSING
    epochs: Optional[int] = MISSING
    few_epochs: int = MISSING
    paper_epochs: int = MISSING
    sizes: dict[str, Size] = field(default_factory=dict)
    device: str = MISSING
    nproc: Optional[int] = MISSING
    threads: Optional[int] = MISSING
    seed: int = MISSING
    cache_dir: Optional[str] = MISSING
    data_root: Optional[str] = MISSING
    graphs: dict[str, PaperGraph] = field(default_factory=dict)
    paper_cache_bytes: Optional[int] = MISSING
    notes: list[str] = MISSING
    notes_on_cpu: list[str] = MISSING
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def torch_device(self) -> torch.device:
        """Where the target measures."""
        return torch.device("cuda", 0) if self.device == "cuda" else torch.device("cpu")

    @property
    def chosen(self) -> list[str]:
        """The datasets to run, in the order of the YAML."""
        return [name for name in self.sizes if self.datasets is None or name in self.datasets]


@dataclass
class RunsConfig(TargetConfig):
    """Keys of a target that trains the graphs of its key ``runs`` with several seeds, on several numbers of ranks."""

    runs: dict[str, Any] = field(default_factory=dict)
    chosen_runs: Optional[list[str]] = None
    seeds: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    planetoid_root: str = MISSING
    npz_root: str = MISSING

    @property
    def names_of_runs(self) -> list[str]:
        """The runs to train, in the order of the YAML."""
        return [name for name in self.runs if self.chosen_runs is None or name in self.chosen_runs]


def check_not_empty(cfg: TargetConfig, *keys: str, task: str = "do", hint: str = "give at least one") -> None:
    """Refuse an empty list, which leaves nothing to ``task``.

    Raises:
        ConfigError: one line that names the key.
    """
    for key in keys:
        if getattr(cfg, key) == []:
            raise ConfigError(f"{key}=[] leaves nothing to {task}: {hint}")


def check_fraction(cfg: TargetConfig, key: str) -> None:
    """Refuse a number that is no part of a whole, or 0.

    Raises:
        ConfigError: one line that names the key.
    """
    value = getattr(cfg, key)
    if not 0 < value <= 1:
        raise ConfigError(f"{key}={value:g} is out of range: give more than 0 and at most 1")


def check_range(cfg: TargetConfig, key: str, least: int, largest: int) -> None:
    """Refuse a number in a list that is smaller or larger.

    Raises:
        ConfigError: one line that names the key.
    """
    for value in getattr(cfg, key):
        if not least <= value <= largest:
            raise ConfigError(f"{key}={value:g} is out of range: give {least} to {largest}")


def published(entries: Sequence[Mapping[str, Any]], value: str, **row: Any) -> Any:
    """The paper's ``value`` of a row, the first among the ``entries`` of a key such as ``paper``; None: it has none.

    An entry is that of all rows that have what it names: graph, model, way, ranks and such.
    """
    for entry in entries:
        if value in entry and all(row.get(key, wanted) == wanted for key, wanted in entry.items() if key in row):
            return entry[value]
    return None


def targets() -> list[str]:
    """Return the names of all targets: tables first, then figures."""
    names = [path.stem for path in (conf_dir() / _FOLDER).glob("*.yaml")]
    return sorted(names, key=lambda name: (not name.startswith("table"), len(name), name))


def module_of(target: str) -> ModuleType:
    """Import the module with the ``Config`` and the ``run`` of a target.

    Targets of one shape share the module of their paper, ``sparsification`` of ``sp_fig7``, whose table of cases their
    key ``case`` chooses from.
    """
    module = _MODULES.get(target) or _MODULES.get(target.partition("_")[0], target)
    return import_module(f"fullgnn.bench.papers.{module}")


def split_arguments(arguments: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Return the targets, the folder ``out`` or None, and the arguments for every target.

    Raises:
        ConfigError: there is no target, or an unknown one.
    """
    own = [argument for argument in arguments if argument.partition("=")[0] in ("target", "out")]
    try:
        given = {one.key_or_group: one.value() for one in OverridesParser.create().parse_overrides(own)}
    except HydraException as error:
        raise ConfigError(explain(error)) from error
    target, out, known = given.get("target"), given.get("out"), targets()
    names = [str(name) for name in (target if isinstance(target, list) else [target]) if name is not None]
    if not names:
        raise ConfigError(f"give target=..., one of {', '.join(known)}, a list [a,b] of them, or {ALL}")
    check_choices("target", names, [*known, ALL] if len(names) == 1 else known)
    names = known if names == [ALL] else list(dict.fromkeys(names))
    return names, None if out is None else str(out), [argument for argument in arguments if argument not in own]


def load_target(target: str, *overrides: str) -> Any:
    """Check the configuration of ``target`` with ``overrides``, and return an instance of the ``Config`` of its module.

    What is left open is decided here: the device, the number of ranks at a time and their threads.

    Raises:
        ConfigError: one line naming the key, what is wrong with it and what it may be.
    """
    cfg = load_keys(f"{_FOLDER}/{target}", module_of(target).Config, list(overrides))
    check_choices("device", [cfg.device], ("cpu", "cuda", "auto"))
    check_choices("datasets", cfg.datasets or (), cfg.graphs)
    check_minima(cfg, _MINIMA)
    if cfg.sizes and not cfg.chosen:
        raise ConfigError(f"datasets={cfg.datasets} leaves nothing to do: the target has {', '.join(cfg.sizes)}")
    if cfg.scale is not None and not 0 < cfg.scale <= 1:
        raise ConfigError(f"scale={cfg.scale:g} is out of range: it must be above 0 and at most 1, full size")
    num_gpus = torch.cuda.device_count()
    if cfg.device == "cuda" and not num_gpus:
        raise ConfigError("device=cuda but no GPU is visible here: use device=cpu")
    cfg.device = "cuda" if num_gpus and cfg.device != "cpu" else "cpu"
    cfg.notes += cfg.notes_on_cpu if cfg.device == "cpu" else []
    runtime = RuntimeConfig(device=cfg.device, nproc=cfg.nproc, threads=cfg.threads)
    cfg.nproc = default_nproc(runtime)
    cfg.threads = num_threads(runtime, cfg.nproc)
    return cfg
