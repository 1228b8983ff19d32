"""Turn ``conf/*.yaml`` and the command line into a checked ``Config``; every user error becomes one clear line."""

import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, is_dataclass, make_dataclass
from enum import Enum
from typing import Any, Optional

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fullgnn.config import Config, MinibatchConfig, conf_dir, target_of
from fullgnn.config.explain import explain, is_user_error, not_a_choice, unknown_key, wrong_value
from fullgnn.config.overrides import quote
from fullgnn.config.schema import CHOICES, OF_SPLIT, SCHEMAS
from fullgnn.errors import ConfigError, quoted

OPEN_GROUPS = (
    "dataset",
    "model",
    "task",
    "scheme",
    "partition",
    "kernel",
    "optimizer",
    "schedule",
    "sampler",
    "cache",
    "codec",
)


def _in_dry_run(dry: Any, real: Any, *, _root_: DictConfig) -> Any:
    """In a YAML, ``${in_dry_run:3,200}`` is 3 in a dry run and 200 otherwise."""
    return dry if OmegaConf.select(_root_, "runtime.dry_run", default=False) else real


OmegaConf.register_new_resolver("in_dry_run", _in_dry_run, replace=True)

ConfigStore.instance().store(name="schema", node=Config)
ConfigStore.instance().store(name="schema_minibatch", node=MinibatchConfig)

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

_LIMITS: dict[str, tuple[float, float]] = {
    "train.epochs": (1, math.inf),
    "train.eval_every": (0, math.inf),
    "train.patience": (0, math.inf),
    "train.checkpoint_every": (0, math.inf),
    "train.checkpoint_every_batches": (0, math.inf),
    "train.keep_checkpoints": (1, math.inf),
    "loader.batch_size": (1, math.inf),
    "loader.num_workers": (0, 4096),
    "loader.num_slots": (1, math.inf),
    "loader.slot_megabytes": (0.001, math.inf),
    "runtime.nproc": (1, 4096),
    "runtime.threads": (1, 4096),
    "runtime.timeout_s": (1, 10**8),
    "reorder.num_blocks": (1, math.inf),
    "reorder.cluster_size": (1, math.inf),
    "seed": (0, math.inf),
    "world_size": (1, 10**6),
    "rank": (0, math.inf),
}
"""The least and the most that a number may be; the most is beyond what any machine has."""

_SIMPLE = (bool, int, float, str, types.NoneType)


def compose(*overrides: str, name: str = "config", folders: Iterable[str] = ()) -> DictConfig:
    """Compose ``conf/<name>.yaml`` with Hydra ``overrides``, as the command line does.

    Args:
        folders: with further choices, as ``--config-dir`` names them.

    Raises:
        ConfigError: a folder, a key or a choice does not exist, or a value has the wrong type.
    """
    further = []
    for folder in map(os.path.abspath, folders):
        if not os.path.isdir(folder):
            raise ConfigError(f"--config-dir={folder} is no folder: give the folder of your own YAML files")
        further.append(quote(f"file://{folder}"))
    search = [f"hydra.searchpath=[{','.join(further)}]"] if further else []
    try:
        with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return hydra.compose(name, overrides=[*overrides, *search])
    except Exception as error:
        if not is_user_error(error):
            raise
        raise ConfigError(explain(error, SCHEMAS[name])) from error


def load_config(cfg: DictConfig) -> Config:
    """Resolve and check a composed configuration, and turn it into plain dataclasses and dicts. ``run_dir`` becomes an
    absolute path.

    Raises:
        ConfigError: one line naming the key, what is wrong with it and what it may be.
    """
    schema: type[Config] = MinibatchConfig if "sampler" in cfg else Config
    try:
        OmegaConf.resolve(cfg)
        missing = sorted(OmegaConf.missing_keys(cfg))
        if missing:
            raise ConfigError(f"{missing[0]} has no value: give {missing[0]}=...")
        _check_keys(cfg, schema, schema)
        for key, choices in CHOICES.items():
            value = OmegaConf.select(cfg, key)
            if value not in choices and key.partition(".")[0] in cfg:
                raise ConfigError(not_a_choice(key, value))
        for key, (least, most) in _LIMITS.items():
            value = OmegaConf.select(cfg, key)
            if value is not None and not least <= value < math.inf:
                raise ConfigError(f"{key}={value} is out of range: it must be finite and at least {least}")
            if value is not None and value > most:
                raise ConfigError(f"{key}={value} is out of range: it must be at most {most}")
        _check_whole_numbers(OmegaConf.to_container(cfg))
        if cfg.train.patience and not cfg.train.eval_every:
            raise ConfigError(
                f"train.patience={cfg.train.patience} counts evaluations: set train.eval_every to 1 or more"
            )
        _check_dry_run(cfg)
        for group in (group for group in OPEN_GROUPS if group in cfg):
            cfg[group] = _typed(group, cfg[group], schema)
            if "name" not in cfg[group]:
                raise ConfigError(f"the YAML of {group} has no key name, which records need: add name: ... to it")
        cfg.reorder.method = _typed("reorder.method", cfg.reorder.method, schema)
        _check_updates(cfg)
        cfg.run_dir = os.path.abspath(os.path.expanduser(cfg.run_dir))  # the one place: files name and compare it
        return typing.cast(Config, OmegaConf.to_object(cfg))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, schema)) from error


def resolved_schedule(node: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """The keys of ``schedule`` with every length that is null replaced by the number of epochs after the warm-up."""
    rest = max(1, epochs - node.get("warmup_epochs", 0))
    return {key: rest if key in LENGTHS and value is None else value for key, value in node.items()}


def _check_whole_numbers(node: Any, place: str = "") -> None:
    """Refuse a number that no int64 holds: neither records nor compiled functions could."""
    if isinstance(node, dict):
        for key, value in node.items():
            _check_whole_numbers(value, f"{place}.{key}" if place else str(key))
    elif isinstance(node, list):
        for value in node:
            _check_whole_numbers(value, place)
    elif isinstance(node, int) and not -(2**63) <= node < 2**63:
        raise ConfigError(f"{place}={node} is too large: it must be below 2^63")


def _check_dry_run(cfg: DictConfig) -> None:
    if not cfg.runtime.dry_run:
        if cfg.world_size is not None or cfg.rank:
            raise ConfigError("world_size and rank belong to a dry run: add runtime.dry_run=true, or leave them out")
    elif cfg.world_size is None:
        raise ConfigError("runtime.dry_run=true needs the number of ranks: give world_size=...")
    elif cfg.rank >= cfg.world_size:
        raise ConfigError(f"rank={cfg.rank} is not one of {cfg.world_size} ranks: choose 0 to {cfg.world_size - 1}")


def _check_updates(cfg: DictConfig) -> None:
    """Check the ranges of numbers, and what keys of ``optimizer``, ``schedule`` and ``train`` need from each other."""
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


def _check_keys(cfg: DictConfig, part: Any, schema: type[Config], prefix: str = "") -> None:
    """Refuse keys that ``+key=value`` appended to a dataclass, ``part`` of ``schema``, since no code reads them."""
    hints = typing.get_type_hints(part)
    for name in map(str, cfg):
        if name not in hints:
            raise ConfigError(unknown_key(prefix + name, schema))
        if is_dataclass(hints[name]) and isinstance(cfg[name], DictConfig):
            _check_keys(cfg[name], hints[name], schema, f"{prefix}{name}.")


def _typed(group: str, node: DictConfig, schema_of_run: type[Config]) -> DictConfig:
    """Check a node against the signature of its ``_target_`` and convert its values to the annotated types."""
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(f"{group}={quoted(node)} is not a choice of the group {group}: it needs a _target_")
    try:
        target = target_of(node)
        parameters = inspect.signature(target).parameters
    except Exception as error:
        raise ConfigError(f"{group}._target_={node['_target_']} cannot be used: {error}") from error
    hints = _type_hints(target)
    common = {"_target_": str, "_partial_": bool, "name": str, "symmetrize": bool}
    if group == "dataset":
        common |= OF_SPLIT
    if group == "schedule":
        common |= WARMUP
        hints |= {key: Optional[hints[key]] for key in LENGTHS if key in hints}
    types_of: dict[str, Any] = {}
    for key in map(str, node):
        if key not in parameters and key not in common:
            raise ConfigError(unknown_key(f"{group}.{key}", schema_of_run))
        types_of[key] = hints.get(key, Any) if key in parameters else common[key]
    fields = [(key, _checkable(hint), field(default=MISSING)) for key, hint in types_of.items()]
    schema = OmegaConf.structured(make_dataclass("Schema", fields))
    try:
        checked: Any = OmegaConf.merge(schema, dict[Any, Any](node) | _in_lists(group, node, types_of))
    except OmegaConfBaseException as error:
        key = str(getattr(error, "full_key", "") or "").partition("[")[0]
        raise ConfigError(wrong_value(f"{group}.{key}", node.get(key), types_of.get(key))) from error
    for key, hint in types_of.items():
        elements = typing.get_args(hint) if typing.get_origin(hint) is tuple else ()
        if elements and elements[-1] is not ... and len(checked[key]) != len(elements):
            raise ConfigError(wrong_value(f"{group}.{key}", node.get(key), hint))
    return OmegaConf.create(typing.cast(dict[str, Any], OmegaConf.to_container(checked)))


def _in_lists(group: str, node: DictConfig, types_of: dict[str, Any]) -> dict[str, list[str]]:
    """The texts of ``node`` whose key takes a list of texts, each as the only element of one: a text is itself a
    sequence, of its letters.

    Raises:
        ConfigError: there is a mapping where a list belongs.
    """
    in_lists: dict[str, list[str]] = {}
    for key, hint in types_of.items():
        takes = _checkable(hint)
        lists = [part for part in (takes, *typing.get_args(takes)) if typing.get_origin(part) is list]
        if lists == [list[str]] and isinstance(node[key], str):
            in_lists[key] = [node[key]]
        elif lists and isinstance(node[key], DictConfig):
            raise ConfigError(wrong_value(f"{group}.{key}", node[key], hint))
    return in_lists


def _type_hints(target: Any) -> dict[str, Any]:
    """The annotated types of the parameters of ``target``; none if a name in them is only known to a type checker."""
    try:
        return typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except NameError:
        return {}


def _checkable(hint: Any) -> Any:
    """The part of a type that OmegaConf can check, such as ``float`` of ``float | Tensor``; ``Any`` if there is none.

    A tuple or another sequence of numbers or texts becomes a list, since YAML has no tuples.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        checkable = [*map(_checkable, arguments)]
        parts = [part for part in checkable if part in _SIMPLE]
        lists = [part for part in checkable if typing.get_origin(part) is list]
        if len(checkable) == len(lists) + 1 == 2 and types.NoneType in parts:
            return Optional[lists[0]]
        return typing.Union[tuple(parts)] if set(parts) - {types.NoneType} else Any
    if origin in (tuple, Sequence):
        elements = {_checkable(argument) for argument in arguments if argument is not ...}
        return list[elements.pop()] if len(elements) == 1 and elements <= set(_SIMPLE) else Any  # type: ignore[misc]
    known = (
        origin in (list, dict)
        or hint in _SIMPLE
        or is_dataclass(hint)
        or (inspect.isclass(hint) and issubclass(hint, Enum))
    )
    return hint if known else Any
