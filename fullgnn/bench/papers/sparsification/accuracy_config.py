"""The keys of the targets of accuracy."""

from dataclasses import dataclass, field
from typing import Any, Optional

from omegaconf import MISSING

from fullgnn.bench.papers.config import TargetConfig, check_not_empty
from fullgnn.config.keys import check_choices, check_minima
from fullgnn.errors import ConfigError


@dataclass
class Data:
    """Where the graph of a dataset comes from, and what its features become."""

    overrides: list[str] = MISSING
    """Overrides of a run that choose the graph."""
    columns: Optional[int] = MISSING
    """Its features are projected to so many columns; null: they stay as they are."""
    symmetrize: bool = False


@dataclass
class Model:
    """A model, and the way in which it is trained."""

    title: str = MISSING
    keys: list[str] = field(default_factory=list)
    """Overrides that choose it."""
    sampled: bool = False
    """Whether it is trained by batches; false: full-batch."""


@dataclass
class CodecRows:
    """A codec at several ratios."""

    title: str = MISSING
    keys: list[str] = field(default_factory=list)
    """Overrides at every ratio."""
    at: dict[int, list[str]] = field(default_factory=dict)
    """Further overrides, by the ratio that they come nearest. ``{k}`` stands for the k of topk that comes nearest with
    these features, ``{dimensions}`` for their columns over the ratio and ``{bytes}`` for their bytes over the ratio."""
    datasets: Optional[list[str]] = None
    """Those to which it is applied; null: all."""


@dataclass
class Config(TargetConfig):
    """The keys of ``conf/reproduce_sparsification_accuracy.yaml``, which explains them."""

    case: str = MISSING
    planetoid_root: str = MISSING
    data: dict[str, Data] = field(default_factory=dict)
    data_seed: int = MISSING
    train_fraction: float = MISSING
    val_fraction: float = MISSING
    models: dict[str, Model] = field(default_factory=dict)
    chosen_models: list[str] = field(default_factory=list)
    training: list[str] = field(default_factory=list)
    sampled_training: list[str] = field(default_factory=list)
    max_epochs: int = MISSING
    patience: int = MISSING
    sampled_max_epochs: int = MISSING
    sampled_patience: int = MISSING
    codecs: dict[str, CodecRows] = field(default_factory=dict)
    chosen_codecs: list[str] = field(default_factory=list)
    ratios: list[int] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    trained_on: list[str] = field(default_factory=list)
    ceiling: float = MISSING
    best_at: list[int] = field(default_factory=list)
    aims: list[dict[str, Any]] = field(default_factory=list)
    paper: list[dict[str, Any]] = field(default_factory=list)


def check(cfg: Config) -> None:
    """Refuse values that no key can have.

    Raises:
        ConfigError: one line that names the key.
    """
    check_not_empty(cfg, "chosen_models", "chosen_codecs", "ratios", "seeds")
    check_choices("chosen_models", cfg.chosen_models, cfg.models)
    check_choices("chosen_codecs", cfg.chosen_codecs, cfg.codecs)
    check_minima(cfg, dict.fromkeys(("ratios", "max_epochs", "sampled_max_epochs"), 1))
    check_minima(cfg, dict.fromkeys(("seeds", "ceiling", "data_seed", "patience", "sampled_patience"), 0))
    if not (cfg.train_fraction > 0 and cfg.val_fraction > 0 and cfg.train_fraction + cfg.val_fraction < 1):
        raise ConfigError(
            f"train_fraction={cfg.train_fraction:g} and val_fraction={cfg.val_fraction:g} are out of range: both must"
            " be above 0, and their sum below 1, since the other nodes test"
        )
