"""The keys of the targets about bytes and time, and then those of the targets of accuracy."""

from dataclasses import dataclass, field
from typing import Any, Optional

from fullgnn.bench.papers.config import NEIGHBOR, Keys
from fullgnn.codecs.topk import GROUP
from fullgnn.errors import ConfigError


@dataclass
class GraphKind:
    """What a target must know of a graph beside its sizes."""

    k: int
    """The paper's k."""
    train_nodes: int
    """At full size."""
    arcs_of_an_edge: int
    """How many stored arcs the paper counts as one edge."""
    counts_loops: bool
    """Whether the paper counts a self-loop of each node too."""


@dataclass
class SparsificationModel:
    """A model of the paper."""

    title: str
    keys: list[str]
    """Overrides that choose it."""
    sampler: str = NEIGHBOR
    transforms_first: bool = False
    """Whether a layer multiplies its input by the weights before it reads neighbours."""


@dataclass
class SparsificationKeys(Keys):
    """The keys of ``conf/reproduce_sparsification.yaml``, which explains them."""

    kinds: dict[str, GraphKind]
    least_batch_size: int
    models: dict[str, SparsificationModel]
    cluster_nodes: int
    least_cluster_nodes: int
    group_size: int
    gather_megabytes: float
    file_megabytes: float
    limit_megabytes: float
    cache_shares: list[float]
    caches: list[str]
    subgraph_share: float


def check_ratios(cfg: SparsificationKeys) -> None:
    """Refuse ratios that the codec cannot have.

    Raises:
        ConfigError: one line that names the key.
    """
    for ratio in cfg.ratios:
        if ratio != 1 and (2 * GROUP % ratio or not 4 <= ratio <= 2 * GROUP):
            raise ConfigError(f"ratios has {ratio}: give 1, or powers of two from 4 to {2 * GROUP}, which are 512 / k")


@dataclass
class GraphSource:
    """Where the graph of a dataset comes from, and what its features become."""

    overrides: list[str]
    """Overrides of a run that choose the graph."""
    columns: Optional[int]
    """Its features are projected to so many columns; null: they stay as they are."""
    symmetrize: bool = False


@dataclass
class AccuracyModel:
    """A model, and the way in which it is trained."""

    title: str
    keys: list[str]
    """Overrides that choose it."""
    sampled: bool = False
    """Whether it is trained by batches; false: full-batch."""


@dataclass
class CodecRows:
    """A codec at several ratios."""

    title: str
    keys: list[str]
    """Overrides at every ratio."""
    at: dict[int, list[str]] = field(default_factory=dict)
    """Further overrides, by the ratio that they come nearest. ``{k}`` stands for the k of topk that comes nearest with
    these features, ``{dimensions}`` for their columns over the ratio and ``{bytes}`` for their bytes over the ratio."""
    datasets: Optional[list[str]] = None
    """Those to which it is applied; null: all."""


@dataclass
class AccuracyKeys(Keys):
    """The keys of ``conf/reproduce_sparsification_accuracy.yaml``, which explains them."""

    data: dict[str, GraphSource]
    data_seed: int
    val_fraction: float
    models: dict[str, AccuracyModel]
    sampled_training: list[str]
    max_epochs: int
    patience: int
    sampled_max_epochs: int
    sampled_patience: int
    codecs: dict[str, CodecRows]
    chosen_codecs: list[str]
    trained_on: list[str]
    ceiling: float
    best_at: list[int]
    aims: list[dict[str, Any]]


def check_split(cfg: AccuracyKeys) -> None:
    """Refuse parts of the nodes that leave no test nodes.

    Raises:
        ConfigError: one line that names the keys.
    """
    train, val = cfg.train_fraction, cfg.val_fraction
    if not (train > 0 and val > 0 and train + val < 1):
        why = "both must be above 0, and their sum below 1, since the other nodes test"
        raise ConfigError(f"train_fraction={train:g} and val_fraction={val:g} are out of range: {why}")
