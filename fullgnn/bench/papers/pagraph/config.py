"""The keys of the targets of PaGraph."""

import math
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from fullgnn.bench.papers.config import check_fraction, check_not_empty, check_range
from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.sampled import SampledConfig
from fullgnn.config.keys import check_choices, check_minima
from fullgnn.errors import ConfigError

NEIGHBOR, LAYER = "neighbor", "layer"
"""Samplers."""

PLAIN, PP, CACHED, BOTH = "plain", "PP", "cached", "cached + PP"
WAYS = (PLAIN, PP, CACHED, BOTH)
"""How features are loaded: all rows of X, rows of A X that are computed once, with a cache, and both."""


@dataclass
class Model:
    """A model of the paper."""

    title: str = MISSING
    keys: list[str] = field(default_factory=list)
    """Overrides that choose it."""
    precomputed: list[str] = field(default_factory=list)
    """Overrides, behind those, where its first product is precomputed."""
    products: int = MISSING
    """How many of X and A X a precomputed first layer reads."""


@dataclass
class Config(SampledConfig):
    """The keys of ``conf/reproduce_pagraph.yaml``, which explains them."""

    case: str = MISSING
    train_fraction: float = MISSING
    batch_sizes: dict[str, int] = field(default_factory=dict)
    epochs: int = MISSING
    symmetrize: bool = MISSING
    shares: list[float] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    models: dict[str, Model] = field(default_factory=dict)
    chosen_models: list[str] = field(default_factory=list)
    training: list[str] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)
    all_fanouts: list[list[int]] = field(default_factory=list)
    layer_sizes: list[int] = field(default_factory=list)
    chosen_ways: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    hardware: str = MISSING
    device_gigabytes: float = MISSING
    reserve_gigabytes: float = MISSING
    seeds: list[int] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    paper: list[dict[str, Any]] = field(default_factory=list)


def check(cfg: Config) -> None:
    """Refuse values that no key can have.

    Raises:
        ConfigError: one line that names the key.
    """
    check_not_empty(cfg, "shares", "parts", task="count", hint="give at least one number")
    check_range(cfg, "shares", 0, 100)
    check_range(cfg, "parts", 1, 1 << 16)
    check_fraction(cfg, "train_fraction")
    check_not_empty(cfg, "chosen_models", "samplers", "all_fanouts", "chosen_ways", "ranks", "seeds")
    check_choices("chosen_models", cfg.chosen_models, cfg.models)
    check_choices("chosen_ways", cfg.chosen_ways, WAYS)
    check_choices("samplers", cfg.samplers, (NEIGHBOR, LAYER))
    check_minima(cfg, dict.fromkeys(("ranks", "batch_size", "batches", "layer_sizes"), 1))
    check_minima(cfg, dict.fromkeys(("device_gigabytes", "reserve_gigabytes", "seeds"), 0))
    for fanouts in cfg.all_fanouts:
        if len(fanouts) < 2 or min(fanouts) < 1:
            raise ConfigError(f"all_fanouts has {list(fanouts)}: give two numbers or more, each at least 1")
    if len(cfg.layer_sizes) < 2:
        raise ConfigError(f"layer_sizes={list(cfg.layer_sizes)} is too short: give two numbers or more")


def batch_size(cfg: Config, case: Case) -> int:
    """Training nodes of a batch of one rank, which shrinks with the graph."""
    return cfg.batch_sizes.get(case.dataset) or max(1, round(cfg.batch_size * case.scale))


def most_inputs(cfg: Config, sampler: str, draws: list[int]) -> int:
    """Inputs of a batch of one rank at full size, if no two of its nodes are the same.

    Args:
        draws: fan-outs, or sizes of layers, at full size, from the targets outwards.
    """
    if sampler == LAYER:
        return cfg.batch_size + sum(draws)
    return cfg.batch_size * math.prod(1 + fanout for fanout in draws)


def cached_share(cfg: Config, case: Case, row_bytes: int, num_inputs: int) -> float:
    """The share of all rows that fits the device of the paper: its memory without a batch's features and the reserve.

    Args:
        row_bytes: of the features of a node.
        num_inputs: of a batch at full size.
    """
    free = 1e9 * (cfg.device_gigabytes - cfg.reserve_gigabytes) - num_inputs * row_bytes
    return min(1.0, max(0.0, free / (case.full.num_nodes * row_bytes)))
