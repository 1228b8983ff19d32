"""The keys of the targets of feature sparsification that are about bytes and time."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from fullgnn.bench.papers.config import check_fraction, check_not_empty, check_range
from fullgnn.bench.papers.graphs import Case, case
from fullgnn.bench.papers.graphs import full_size as size_of
from fullgnn.bench.papers.sampled import SampledConfig
from fullgnn.codecs.topk import GROUP
from fullgnn.config.keys import check_choices, check_minima
from fullgnn.errors import ConfigError

CACHES = ("degree", "presample", "exact")
NEIGHBOR, CLUSTER = "neighbor", "cluster"
"""Samplers."""


@dataclass
class Kind:
    """What a target must know of a graph beside its sizes."""

    k: int = MISSING
    """The paper's k."""
    train_nodes: int = MISSING
    """At full size."""
    arcs_of_an_edge: int = MISSING
    """How many stored arcs the paper counts as one edge."""
    counts_loops: bool = MISSING
    """Whether the paper counts a self-loop of each node too."""


@dataclass
class Model:
    """A model of the paper."""

    title: str = MISSING
    keys: list[str] = field(default_factory=list)
    """Overrides that choose it."""
    sampler: str = NEIGHBOR
    transforms_first: bool = False
    """Whether a layer multiplies its input by the weights before it reads neighbours."""


@dataclass
class Config(SampledConfig):
    """The keys of ``conf/reproduce_sparsification.yaml``, which explains them."""

    case: str = MISSING
    kinds: dict[str, Kind] = field(default_factory=dict)
    least_batch_size: int = MISSING
    models: dict[str, Model] = field(default_factory=dict)
    chosen_models: list[str] = field(default_factory=list)
    cluster_nodes: int = MISSING
    least_cluster_nodes: int = MISSING
    group_size: int = MISSING
    ranks: list[int] = field(default_factory=list)
    hardware: str = MISSING
    gather_megabytes: float = MISSING
    ratios: list[int] = field(default_factory=list)
    file_megabytes: float = MISSING
    limit_megabytes: float = MISSING
    cache_shares: list[float] = field(default_factory=list)
    caches: list[str] = field(default_factory=list)
    subgraph_share: float = MISSING
    paper: list[dict[str, Any]] = field(default_factory=list)


def check(cfg: Config) -> None:
    """Refuse values that no key can have.

    Raises:
        ConfigError: one line that names the key.
    """
    check_not_empty(cfg, "chosen_models", "ranks", "ratios", "cache_shares", "caches")
    check_choices("chosen_models", cfg.chosen_models, cfg.models)
    check_choices("caches", cfg.caches, CACHES)
    sizes = ("ranks", "batch_size", "least_batch_size", "batches", "cluster_nodes", "least_cluster_nodes", "group_size")
    check_minima(cfg, dict.fromkeys((*sizes, "file_megabytes", "gather_megabytes", "limit_megabytes"), 1))
    for ratio in cfg.ratios:
        if ratio != 1 and (2 * GROUP % ratio or not 4 <= ratio <= 2 * GROUP):
            raise ConfigError(f"ratios has {ratio}: give 1, or powers of two from 4 to {2 * GROUP}, which are 512 / k")
    check_range(cfg, "cache_shares", 0, 100)
    check_fraction(cfg, "subgraph_share")


def cases(cfg: Config, features: bool = True) -> list[Case]:
    """The graphs that ``cfg`` chooses, whose share of training nodes is the real one.

    Args:
        features: see ``graphs.cases``.
    """
    return [case(cfg, name, features, split_of(cfg, name)) for name in cfg.chosen]


def split_of(cfg: Config, name: str) -> list[str]:
    """Overrides of a look-alike with the real share of training nodes."""
    share = cfg.kinds[name].train_nodes / size_of(name).num_nodes
    return [f"dataset.train_fraction={share!r}", f"dataset.val_fraction={min(0.1, 1 - share)!r}"]


def batch_size(cfg: Config, one: Case) -> int:
    """Training nodes of a batch of one rank, which shrinks with the graph."""
    return max(1, min(round(max(cfg.least_batch_size, cfg.batch_size * one.scale)), int(one.graph.train_mask.sum())))
