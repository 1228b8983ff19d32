"""Turn ``conf/*.yaml`` and the command line into a checked ``Config``; every user error becomes one clear line."""

import difflib
import inspect
import math
import os
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import field, is_dataclass, make_dataclass
from enum import Enum
from typing import Any, Optional

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fullgnn.config import Config, MinibatchConfig, conf_dir, target_of
from fullgnn.config.overrides import pasteable, quote
from fullgnn.config.schema import TABLES
from fullgnn.config.updates import LENGTHS, WARMUP, check_updates
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

SCHEMAS: dict[str, type[Config]] = {"config": Config, "minibatch": MinibatchConfig}
"""The files of ``conf/`` that describe a run, and their schemas."""


def _in_dry_run(dry: Any, real: Any, *, _root_: DictConfig) -> Any:
    """In a YAML, ``${in_dry_run:3,200}`` is 3 in a dry run and 200 otherwise."""
    return dry if OmegaConf.select(_root_, "runtime.dry_run", default=False) else real


OmegaConf.register_new_resolver("in_dry_run", _in_dry_run, replace=True)

ConfigStore.instance().store(name="schema", node=Config)
ConfigStore.instance().store(name="schema_minibatch", node=MinibatchConfig)

_CHOICES: dict[str, tuple[str | bool, ...]] = {
    "normalization": ("sym", "row", "none"),
    "reorder.scope": ("block", "whole"),
    "optimizations.spmm_order": ("width", "transform", "propagate"),
    "optimizations.cache_aggregation": ("auto", True, False),
    "optimizations.loss_rows_only": ("auto", True, False),
    "optimizations.sparse_features": ("auto", True, False),
    "optimizations.offload": ("auto", "always", "never"),
    "train.prediction_table": TABLES,
    "train.table": ("short", "full"),
    "loader.split": ("even", "pagraph"),
    "runtime.device": ("auto", "cpu", "cuda"),
    "runtime.backend": ("auto", "gloo", "nccl"),
    "runtime.dtype": ("float32", "float64"),
    "runtime.precision": ("float32", "tf32"),
    "runtime.cuda_graph": ("auto", "never"),
}
_MINIMA = {
    "train.epochs": 1,
    "train.eval_every": 0,
    "train.patience": 0,
    "train.checkpoint_every": 0,
    "train.checkpoint_every_batches": 0,
    "loader.batch_size": 1,
    "loader.num_workers": 0,
    "loader.num_slots": 1,
    "loader.slot_megabytes": 0.001,
    "train.keep_checkpoints": 1,
    "runtime.nproc": 1,
    "runtime.threads": 1,
    "runtime.timeout_s": 1,
    "reorder.num_blocks": 1,
    "reorder.cluster_size": 1,
    "seed": 0,
    "world_size": 1,
    "rank": 0,
}
_MAXIMA = {  # beyond which no machine is
    "runtime.nproc": 4096,
    "runtime.threads": 4096,
    "runtime.timeout_s": 10**8,
    "loader.num_workers": 4096,
    "world_size": 10**6,
}
_OF_SPLIT: dict[str, Any] = {
    "split": Optional[typing.Union[int, str]],
    "train_fraction": Optional[float],
    "val_fraction": Optional[float],
    "train_per_class": Optional[int],
    "num_val": Optional[int],
    "num_folds": Optional[int],
    "fold": Optional[int],
    "groups": Optional[str],
    "split_seed": Optional[int],
}
"""The keys of ``conf/dataset/base.yaml`` and their types, where the ``load`` of a dataset does not have them itself."""
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
        for key, choices in _CHOICES.items():
            value = OmegaConf.select(cfg, key)
            if value not in choices and key.partition(".")[0] in cfg:
                raise ConfigError(_not_a_choice(key, value))
        for key, minimum in _MINIMA.items():
            value = OmegaConf.select(cfg, key)
            if value is not None and not (value >= minimum and math.isfinite(value)):
                raise ConfigError(f"{key}={value} is out of range: it must be finite and at least {minimum}")
        for key, maximum in _MAXIMA.items():
            value = OmegaConf.select(cfg, key)
            if value is not None and value > maximum:
                raise ConfigError(f"{key}={value} is out of range: it must be at most {maximum}")
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
        check_updates(cfg)
        cfg.run_dir = os.path.abspath(os.path.expanduser(cfg.run_dir))  # the one place: files name and compare it
        return typing.cast(Config, OmegaConf.to_object(cfg))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, schema)) from error


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


def is_user_error(error: BaseException) -> bool:
    """Whether Hydra or OmegaConf raised ``error`` because of what the user wrote."""
    of_hydra = ("Config group override must be", "Exceeds the limit")  # scheme=2, and a number of 5000 digits
    by_text = isinstance(error, ValueError) and str(error).startswith(of_hydra)
    return by_text or isinstance(error, (HydraException, OmegaConfBaseException))


def explain(error: Exception, schema: type[Config] = Config, sweep: bool = False) -> str:
    """Say in one line what is wrong with a configuration of this ``schema``, and what to write instead.

    Args:
        sweep: whether the command line is that of a sweep, where commas separate values.
    """
    text = " ".join(str(error).split())
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        options = ", ".join(option for option in error.options if option != "base")
        return f"{group}={choice} is not known: choose one of {options}"
    if isinstance(error, OverrideParseException):
        return _unreadable(str(error.override), sweep)
    if text.startswith("Exceeds the limit"):
        return "a number on the command line has thousands of digits: give one below 2^63"
    if text.startswith("Config group override must be"):
        return (
            "a number or null is no choice of dataset, model, scheme or another group: give a name, as in scheme=1.5d"
        )
    if ambiguous := re.match(r"Ambiguous value for argument '([^']+)'", text):
        several = re.match(r"(?s)Ambiguous value for argument '(.*?)'\n", str(error))
        one = several and _as_text(several[1], schema)
        return f"{ambiguous[1]} gives several values: add -m to sweep over them" + (f", or write {one}" if one else "")
    if swept := re.match(r"(?s)Sweep parameters '(.*)' requires --multirun", str(error)):
        one = pasteable(swept[1])
        return f"{' '.join(swept[1].split())} is a sweep: add -m" + (f", or write {one} if it is a text" if one else "")
    if unknown := re.match(r"Could not override '([^']+)'", text):
        return _unknown_key(unknown[1], schema)
    if override := re.match(r"Error merging override (.+)", text):
        key, _, value = override[1].partition("=")
        if key.startswith("~"):
            return f"{key[1:]} cannot be removed: leave out {key}"
        cure = _as_text(override[1], schema) if value[:1] in ("[", "{") else None
        return _wrong_value(key.lstrip("+"), value, _hint(key.lstrip("+"), schema)) + (
            f": write {cure}" if cure else ""
        )
    detail = "" if cause is error else f" ({' '.join(str(cause).split())})"
    return text + detail


def _unreadable(argument: str, sweep: bool) -> str:
    """Refuse an ``argument`` that Hydra's grammar does not have, and show it as Hydra and a shell read it."""
    cure, value = pasteable(argument, sweep), argument.partition("=")[2]
    refused = f"argument {argument} cannot be read"
    if cure is None:
        return f"{refused}: write key=value, and quote a value with special characters"
    if value.startswith(("[", "{")):  # perhaps a list or a mapping that lacks its end
        return f"{refused}: write key=value with a whole list or mapping, or {cure} if it is a text"
    return f"{refused}: write {cure}"


def _as_text(argument: str, schema: type[Config]) -> str | None:
    """``argument`` for a shell, with a value that is one text; None if the key takes no text, or perhaps none."""
    key, _, value = argument.partition("=")
    takes_text = "a text" in _in_words(_hint(key.lstrip("+"), schema))
    return pasteable(argument) if key not in _CHOICES and (takes_text or "/" in value) else None


def _wrong_value(key: str, value: Any, hint: Any) -> str:
    if key in _CHOICES:
        return _not_a_choice(key, value)
    wanted, value = _in_words(hint), "null" if value is None else quoted(value)
    return f"{key}={value} does not fit: it takes {wanted}" if wanted else f"{key}={value} is not possible here"


def _not_a_choice(key: str, value: Any) -> str:
    """Refuse a ``value`` that is none of ``_CHOICES``; both are spelled as in YAML."""
    choices = ", ".join(map(_spelled, _CHOICES[key]))
    return f"{key}={quoted(_spelled(value))} is not known: choose one of {choices}"


def _spelled(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _in_words(hint: Any) -> str:
    """Describe a type: ``an integer or null`` for ``int | None``; empty for an unknown type."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(filter(None, map(_in_words, typing.get_args(hint))))
    if typing.get_origin(hint) in (list, tuple):
        element, *others = typing.get_args(hint)
        length = f" of {len(others) + 1}" if typing.get_origin(hint) is tuple else ""
        return f"a list{length}, each element {_in_words(element)}, as in [a,b]"
    names = {int: "an integer", float: "a number", bool: "true or false", str: "a text", types.NoneType: "null"}
    return names.get(hint, "")


def _hint(key: str, schema: type[Config]) -> Any:
    """Annotated type of a dotted key of ``schema``; None below an open group."""
    found: Any = schema
    for part in key.split("."):
        found = typing.get_type_hints(found).get(part) if is_dataclass(found) else None
    return found


def _unknown_key(key: str, schema: type[Config]) -> str:
    """Explain an unknown key: name the likely key, or the choices that have the key, or all keys."""
    known = _known_keys(schema)
    if key.startswith("dataset.") and key.removeprefix("dataset.") in _OF_SPLIT:
        return f"the YAML of this dataset has no {key}: write +{key}=..., or add the default base to its YAML"
    group, _, name = key.rpartition(".")
    if key in known:
        choices = " or ".join(f"{group}={choice}" for choice in sorted(known[key]))
        return f"{key} is not a key of the chosen {group}: it belongs to {choices}"
    siblings = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == group}
    near = difflib.get_close_matches(name, siblings, n=1, cutoff=0.7)
    elsewhere = [other for other in sorted(known) if other.rpartition(".")[2] == name]
    elsewhere = difflib.get_close_matches(key, elsewhere, n=1, cutoff=0.0)
    if near or elsewhere:
        return f"unknown configuration key {key}: did you mean {siblings[near[0]] if near else elsewhere[0]}?"
    place = f"the keys of {group} in conf/" if group in known else "the keys"
    there = siblings if group in known else [other for other in known if "." not in other]
    return f"unknown configuration key {key}: {place} are {', '.join(sorted(there))}"


def _known_keys(schema: type[Config]) -> dict[str, set[str]]:
    """Return every dotted key and group of ``conf/`` that ``schema`` has, each with the choices whose file sets it."""
    known: dict[str, set[str]] = {}
    hints = typing.get_type_hints(schema)
    for path in conf_dir().rglob("*.yaml"):
        group = ".".join(path.parent.relative_to(conf_dir()).parts)
        # Experiments set keys of other groups; hardware profiles and the other commands have keys of their own.
        of_run = group in hints if group else path.stem in SCHEMAS
        if not of_run or path.stem == "base":
            continue
        of_group = typing.get_type_hints(hints[group]) if group and is_dataclass(hints[group]) else None
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        assert isinstance(content, dict)
        if "base" in content.get("defaults", []):
            content = dict(OmegaConf.load(path.with_name("base.yaml"))) | content
        for name in map(str, content):
            if of_group is not None and name not in of_group:
                continue
            if name not in ("defaults", "hydra", "method") and not name.startswith("_"):
                known.setdefault(f"{group}.{name}" if group else name, set()).add(path.stem)
        if group:
            known.setdefault(group, set())
    return known


def _check_keys(cfg: DictConfig, part: Any, schema: type[Config], prefix: str = "") -> None:
    """Refuse keys that ``+key=value`` appended to a dataclass, ``part`` of ``schema``, since no code reads them."""
    hints = typing.get_type_hints(part)
    for name in map(str, cfg):
        if name not in hints:
            raise ConfigError(_unknown_key(prefix + name, schema))
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
        common |= _OF_SPLIT
    if group == "schedule":
        common |= WARMUP
        hints |= {key: Optional[hints[key]] for key in LENGTHS if key in hints}
    types_of: dict[str, Any] = {}
    for key in map(str, node):
        if key not in parameters and key not in common:
            raise ConfigError(_unknown_key(f"{group}.{key}", schema_of_run))
        types_of[key] = hints.get(key, Any) if key in parameters else common[key]
    fields = [(key, _checkable(hint), field(default=MISSING)) for key, hint in types_of.items()]
    schema = OmegaConf.structured(make_dataclass("Schema", fields))
    try:
        checked: Any = OmegaConf.merge(schema, dict[Any, Any](node) | _in_lists(group, node, types_of))
    except OmegaConfBaseException as error:
        key = str(getattr(error, "full_key", "") or "").partition("[")[0]
        raise ConfigError(_wrong_value(f"{group}.{key}", node.get(key), types_of.get(key))) from error
    for key, hint in types_of.items():
        elements = typing.get_args(hint) if typing.get_origin(hint) is tuple else ()
        if elements and elements[-1] is not ... and len(checked[key]) != len(elements):
            raise ConfigError(_wrong_value(f"{group}.{key}", node.get(key), hint))
    return OmegaConf.create(typing.cast(dict[str, Any], OmegaConf.to_container(checked)))


def _in_lists(group: str, node: DictConfig, types_of: dict[str, Any]) -> dict[str, list[str]]:
    """The texts of ``node`` whose key takes a list of texts, each as the only element of one: a text is itself a
    sequence, of its letters.

    Raises:
        ConfigError: there is a mapping where a list belongs.
    """
    found: dict[str, list[str]] = {}
    for key, hint in types_of.items():
        takes = _checkable(hint)
        lists = [part for part in (takes, *typing.get_args(takes)) if typing.get_origin(part) is list]
        if lists == [list[str]] and isinstance(node[key], str):
            found[key] = [node[key]]
        elif lists and isinstance(node[key], DictConfig):
            raise ConfigError(_wrong_value(f"{group}.{key}", node[key], hint))
    return found


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
        found = [*map(_checkable, arguments)]
        parts = [part for part in found if part in _SIMPLE]
        lists = [part for part in found if typing.get_origin(part) is list]
        if len(found) == len(lists) + 1 == 2 and types.NoneType in parts:
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
