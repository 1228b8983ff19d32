"""Check the keys of ``optimizer`` and ``schedule`` beyond their types, and what they need from ``train``."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from fullgnn.errors import ConfigError

WARMUP = {"warmup_epochs": int, "warmup_start": float}
"""Keys of every schedule, which its target does not see, and their types."""

LENGTHS = ("T_max", "total_iters", "total_steps")
"""Names that torch's schedulers give to their number of epochs. Null means the number of epochs after the warm-up."""

_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "optimizer.lr": (lambda value: 0 <= value < math.inf, "finite and at least 0"),
    "optimizer.momentum": (lambda value: 0 <= value < math.inf, "finite and at least 0"),
    "optimizer.weight_decay": (lambda value: 0 <= value < math.inf, "finite and at least 0"),
    "optimizer.eps": (lambda value: 0 <= value < math.inf, "finite and at least 0"),
    "optimizer.betas": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "schedule.warmup_epochs": (lambda value: value >= 0, "at least 0"),
    "schedule.warmup_start": (lambda value: 0 < value <= 1, "above 0 and at most 1"),
    "schedule.T_max": (lambda value: value >= 1, "at least 1"),
    "schedule.total_iters": (lambda value: value >= 1, "at least 1"),
    "schedule.step_size": (lambda value: value >= 1, "at least 1"),
    "schedule.eta_min": (lambda value: 0 <= value < math.inf, "finite and at least 0"),
    "schedule.gamma": (lambda value: 0 < value < math.inf, "finite and above 0"),
    "schedule.factor": (lambda value: 0 <= value <= 1, "at least 0 and at most 1"),
    "schedule.start_factor": (lambda value: 0 < value <= 1, "above 0 and at most 1"),
    "schedule.end_factor": (lambda value: 0 <= value <= 1, "at least 0 and at most 1"),
    "train.clip_norm": (lambda value: 0 < value < math.inf, "finite and above 0"),
}


def resolved_schedule(node: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """The keys of ``schedule`` with every length that is null replaced by the number of epochs after the warm-up."""
    rest = max(1, epochs - node.get("warmup_epochs", 0))
    return {key: rest if key in LENGTHS and value is None else value for key, value in node.items()}


def check_updates(cfg: DictConfig) -> None:
    """Check the ranges of numbers, and what keys of ``optimizer``, ``schedule`` and ``train`` need from each other.

    Raises:
        ConfigError: one line naming the key, what is wrong with it and what it may be.
    """
    for key, (fits, words) in _RANGES.items():
        value = OmegaConf.select(cfg, key)
        for number in value if isinstance(value, ListConfig) else [value]:
            if isinstance(number, (int, float)) and not fits(number):
                raise ConfigError(f"{key}={value} is out of range: it must be {words}")
    warmup = cfg.schedule.get("warmup_epochs", 0)
    if warmup > cfg.train.epochs and not cfg.runtime.dry_run:  # a dry run has few epochs
        raise ConfigError(
            f"schedule.warmup_epochs={warmup} is longer than the training: train.epochs={cfg.train.epochs}"
        )
    if cfg.optimizer.get("nesterov") and not cfg.optimizer.get("momentum"):
        raise ConfigError("optimizer.nesterov=true needs a momentum: give optimizer.momentum, such as 0.9")
