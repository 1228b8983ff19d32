"""The command line of the reproduction: the schema of all targets and the ranges of their keys here, the values in
``conf/``."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass
from importlib import import_module
from typing import Any, Optional, get_type_hints

import hydra
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from fullgnn.config import RuntimeConfig, conf_dir
from fullgnn.config.explain import explain
from fullgnn.config.keys import check_choices, check_minima, load_keys
from fullgnn.distributed.mesh import default_nproc, num_threads
from fullgnn.errors import ConfigError
from fullgnn.storage.text import parse_yaml

ALL = "all"
_FOLDER = "experiment/reproduce"
_ACCURACY = ("sp_table2", "sp_table3", "sp_table4", "sp_fig5", "sp_fig6", "sp_mlp", "sp_codecs")
_PAPERS = {
    "fused": "fused",
    "pagraph": "pagraph",
    "sp": "sparsification",
    "time": "time_to_accuracy",
    **dict.fromkeys(_ACCURACY, "sparsification.accuracy"),
}
"""Module of a paper, by the name of its target or by what that begins with."""
PROSE = ("notes", "notes_on_cpu", "texts")
"""The keys of sentences, which records leave out of the configuration."""

NEIGHBOR, LAYER, CLUSTER = "neighbor", "layer", "cluster"
"""Samplers."""
PLAIN, PP, CACHED, BOTH = "plain", "PP", "cached", "cached + PP"
WAYS = (PLAIN, PP, CACHED, BOTH)
"""How PaGraph loads features: all rows of X, rows of A X that are computed once, with a cache, and both."""


@dataclass
class PaperGraph:
    """A graph of the paper, which ``conf/dataset/<key>.yaml`` imitates."""

    title: str
    file: str
    """Name of the real graph's file in ``data_root``, without .npz."""
    hidden: int
    """Width of the hidden layer."""


@dataclass
class LookAlikeSize:
    """How far a look-alike is shrunk by default."""

    scale: float
    """Multiplies the number of nodes."""
    density: Optional[float] = None
    """Upper limit of nnz / n^2 over the real graph's; the mean degree falls with it. null: the real mean degree."""


@dataclass
class JobShape:
    """A scheme on ``p`` ranks with ``r`` replicas; the keys ``layout`` and ``layouts`` hold them."""

    scheme: str
    p: int
    r: int
    title: Optional[str] = None
    """What rows call it; null: its scheme and its ranks."""

    @property
    def num_parts(self) -> int:
        """Number of block rows."""
        return self.p // self.r

    @property
    def name(self) -> str:
        return self.title or f"{self.scheme.upper()} p={self.p}" + (f" r={self.r}" if self.r > 1 else "")

    def overrides(self) -> list[str]:
        """Return the overrides of a run of this shape, which win over those of an experiment."""
        return [f"scheme={self.scheme}", f"scheme.replication={self.r}"]


@dataclass
class Keys:
    """The keys that targets have, which the files in ``conf/`` explain; a target has those that its YAML names.

    A key whose type differs between targets is in a subclass for each of these types.
    """

    title: str
    datasets: Optional[list[str]]
    scale: Optional[float]
    epochs: Optional[int]
    few_epochs: int
    paper_epochs: int
    sizes: dict[str, LookAlikeSize]
    device: str
    nproc: Optional[int]
    threads: Optional[int]
    seed: int
    cache_dir: Optional[str]
    data_root: Optional[str]
    graphs: dict[str, PaperGraph]
    paper_cache_bytes: Optional[int]
    notes: list[str]
    notes_on_cpu: list[str]
    texts: dict[str, str]
    paper: list[dict[str, Any]]
    """Numbers of the paper: what names their row, and the values."""
    case: str
    rounds: int
    processes: list[int]
    ranks: list[int]
    seeds: list[int]
    links: str
    hardware: str
    planetoid_root: str
    npz_root: str
    chosen_runs: Optional[list[str]]
    chosen_models: list[str]
    training: list[str]
    ratios: list[int]
    fanouts: list[int]
    batch_size: int
    batches: int
    peers: list[str]
    train_fraction: float
    layout: JobShape
    layouts: list[JobShape]
    kernels: list[str]
    partition: str
    unbalanced: float
    preset: str
    paper_scope: str
    choices: list[str]
    plain: list[str]
    block_sparse: list[str]
    thresholds: list[float]
    warmup: int
    budget_s: float
    base: str
    others: list[str]
    other_hidden: int
    overrides: list[str]
    tolerance: float
    paper_over_plain: float
    paper_over_single: float
    fraction: float
    counts: list[int]
    stations: dict[str, list[float]]

    @property
    def torch_device(self) -> torch.device:
        """Where the target measures."""
        return torch.device("cuda", 0) if self.device == "cuda" else torch.device("cpu")

    @property
    def most_ranks(self) -> int:
        """How many ranks run at one time."""
        return self.nproc or 1

    @property
    def chosen(self) -> list[str]:
        """The datasets to run, in the order of the YAML."""
        return [name for name in self.sizes if self.datasets is None or name in self.datasets]


_NOT_EMPTY = (
    *("chosen_runs", "chosen_models", "chosen_codecs", "chosen_ways", "samplers", "all_fanouts", "caches"),
    *("seeds", "processes", "ranks", "parts", "shares", "cache_shares", "ratios"),
)
_CHOICES = {f"chosen_{known}": known for known in ("runs", "models", "codecs")} | {
    "datasets": "graphs",
    "device": ("cpu", "cuda", "auto"),
    "chosen_ways": WAYS,
    "samplers": (NEIGHBOR, LAYER),
    "caches": ("degree", "presample", "exact"),
}
"""What a key may be: these values, or the names that another key has."""
_MINIMA = (
    dict.fromkeys(("epochs", "few_epochs", "paper_epochs"), 2)  # the first of them warms up and is not counted
    | dict.fromkeys(("nproc", "threads", "rounds", "paper_cache_bytes", "processes", "ranks", "ratios"), 1)
    | dict.fromkeys(("batch_size", "least_batch_size", "batches", "layer_sizes", "group_size"), 1)
    | dict.fromkeys(("cluster_nodes", "least_cluster_nodes", "max_epochs", "sampled_max_epochs"), 1)
    | dict.fromkeys(("file_megabytes", "gather_megabytes", "limit_megabytes"), 1)
    | dict.fromkeys(("seed", "seeds", "data_seed", "patience", "sampled_patience", "ceiling"), 0)
    | dict.fromkeys(("device_gigabytes", "reserve_gigabytes"), 0)
)
_RANGES = {"shares": (0, 100), "cache_shares": (0, 100), "parts": (1, 1 << 16)}
_FRACTIONS = ("fraction", "train_fraction", "subgraph_share")


def check_keys(cfg: Any) -> None:
    """Refuse values that no key can have, whichever target has it.

    Raises:
        ConfigError: one line that names the key, and what it may be.
    """
    for key, known in _CHOICES.items():
        value = getattr(cfg, key, None)
        values = value if isinstance(value, list) else [] if value is None else [value]
        check_choices(key, values, getattr(cfg, known, ()) if isinstance(known, str) else known)
    for key in _NOT_EMPTY:
        if getattr(cfg, key, None) == []:
            raise ConfigError(f"{key}=[] leaves nothing to do: give at least one")
    check_minima(cfg, _MINIMA)
    for key, (least, largest) in _RANGES.items():
        for value in getattr(cfg, key, ()):
            if not least <= value <= largest:
                raise ConfigError(f"{key}={value:g} is out of range: give {least} to {largest}")
    for key in _FRACTIONS:
        if not 0 < getattr(cfg, key, 1) <= 1:
            raise ConfigError(f"{key}={getattr(cfg, key):g} is out of range: give more than 0 and at most 1")
    if cfg.sizes and not cfg.chosen:
        raise ConfigError(f"datasets={cfg.datasets} leaves nothing to do: the target has {', '.join(cfg.sizes)}")
    if cfg.scale is not None and not 0 < cfg.scale <= 1:
        raise ConfigError(f"scale={cfg.scale:g} is out of range: it must be above 0 and at most 1, full size")


def chosen_runs(cfg: Any) -> list[str]:
    """The names of the ``runs`` to train, in the order of the YAML."""
    return [name for name in cfg.runs if cfg.chosen_runs is None or name in cfg.chosen_runs]


def published(entries: Sequence[Mapping[str, Any]], value: str, **row: Any) -> Any:
    """The paper's ``value`` of a row, the first among the ``entries`` of the key ``paper``; None: it has none.

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


def title_of(target: str) -> str:
    """Return the title that the YAML of ``target`` gives."""
    path = conf_dir() / _FOLDER / f"{target}.yaml"
    return parse_yaml(path.read_text(encoding="utf-8"), path)["title"]


def cases_of(target: str) -> dict[str, Any]:
    """The table of the paper of ``target``: a ``Target`` for each value of its key ``case``, or for its name."""
    paper = _PAPERS.get(target) or _PAPERS.get(target.partition("_")[0], "hetu")
    return import_module(f"fullgnn.bench.papers.{paper}").CASES


def run(target: str, cfg: Any) -> Any:
    """Fill the ``Result`` of a target with the function that its key ``case`` chooses.

    Raises:
        ConfigError: the paper has no such case.
    """
    cases, case = cases_of(target), getattr(cfg, "case", target)
    check_choices("case", [case], cases)
    return cases[case](cfg)


def split_arguments(arguments: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Return the targets, the folder ``out`` or None, and the arguments for every target.

    Raises:
        ConfigError: there is no target, or an unknown one.
    """
    own = [argument for argument in arguments if argument.partition("=")[0] in ("target", "out")]
    try:
        overrides = OverridesParser.create().parse_overrides(own)
    except HydraException as error:
        raise ConfigError(explain(error)) from error
    values = {override.key_or_group: override.value() for override in overrides}
    target, out, known = values.get("target"), values.get("out"), targets()
    names = [str(name) for name in (target if isinstance(target, list) else [target]) if name is not None]
    if not names:
        raise ConfigError(f"give target=..., one of {', '.join(known)}, a list [a,b] of them, or {ALL}")
    check_choices("target", names, [*known, ALL] if len(names) == 1 else known)
    names = known if names == [ALL] else list(dict.fromkeys(names))
    return names, None if out is None else str(out), [argument for argument in arguments if argument not in own]


@functools.cache
def schema_of(target: str) -> type:
    """A dataclass of the keys that the YAML of ``target`` names: a user may change these, and no others."""
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        named = hydra.compose(f"{_FOLDER}/{target}")
    keys = cases_of(target)[named.get("case", target)].keys
    hints = get_type_hints(keys)
    own = [(field.name, hints[field.name]) for field in fields(keys) if field.name in named]
    properties = {name: value for name, value in vars(Keys).items() if isinstance(value, property)}
    return make_dataclass(keys.__name__, own, namespace=properties)


def load_target(target: str, *overrides: str) -> Any:
    """Check the configuration of ``target`` with ``overrides``, and return an instance of ``schema_of(target)``.

    What is left open is decided here: the device, the number of ranks at a time and their threads.

    Raises:
        ConfigError: one line naming the key, what is wrong with it and what it may be.
    """
    cfg = load_keys(f"{_FOLDER}/{target}", schema_of(target), list(overrides))
    check_keys(cfg)
    num_gpus = torch.cuda.device_count()
    if cfg.device == "cuda" and not num_gpus:
        raise ConfigError("device=cuda but no GPU is visible here: use device=cpu")
    cfg.device = "cuda" if num_gpus and cfg.device != "cpu" else "cpu"
    cfg.notes += cfg.notes_on_cpu if cfg.device == "cpu" else []
    runtime = RuntimeConfig(device=cfg.device, nproc=cfg.nproc, threads=cfg.threads)
    cfg.nproc = default_nproc(runtime)
    cfg.threads = num_threads(runtime, cfg.nproc)
    return cfg
