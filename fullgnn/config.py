"""The configuration: dataclass schemas here, values in ``conf/*.yaml``, one check for both.

The groups ``reorder``, ``train`` and ``runtime`` have a dataclass each. ``dataset``, ``model``, ``scheme`` and
``kernel`` are open: their YAML names a ``_target_``, and the signature of that target is its schema. So a new dataset
or model is one file and one YAML, and a wrong type is still found before anything runs.
"""

import difflib
import functools
import inspect
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, Optional

import hydra.utils
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fullgnn.errors import ConfigError

OPEN_GROUPS = ("dataset", "model", "scheme", "kernel")


@dataclass
class ReorderConfig:
    name: str = MISSING
    scope: str = MISSING
    """``block``: order inside each block row (Algorithm 2 of Miao et al. 2023); ``whole``: the whole graph at once."""
    num_blocks: Optional[int] = MISSING
    """Blocks of the blockwise order; null takes the scheme's number of block rows, p/r."""
    cluster_size: int = MISSING
    """Mean number of nodes in a METIS cluster."""
    method: Any = MISSING
    """Node with the ``_target_`` that computes the order of one block."""


@dataclass
class TrainConfig:
    epochs: int = MISSING
    optimizer: str = MISSING
    """``adam`` or ``sgd``."""
    lr: float = MISSING
    momentum: float = MISSING
    """Momentum of ``sgd``."""
    weight_decay: float = MISSING
    """L2 penalty, added to the gradient of every parameter."""
    eval_every: int = MISSING
    """Evaluate every so many epochs; 0: once, after the last."""
    patience: int = MISSING
    """Stop after so many evaluations without a better validation accuracy; 0: never."""
    save_predictions: bool = MISSING
    """Write ``predictions.npz`` with the classes and logits of the best-validation epoch."""


@dataclass
class RuntimeConfig:
    nproc: Optional[int] = MISSING
    """Processes on this machine; null: one for each visible GPU, or one. Under torchrun its count holds."""
    device: str = MISSING
    """``cpu``, ``cuda``, or ``auto``: cuda where a GPU is visible."""
    backend: str = MISSING
    """``gloo``, ``nccl``, or ``auto``: nccl on cuda, gloo on cpu."""
    dtype: str = MISSING
    """``float32`` or ``float64``."""
    threads: Optional[int] = MISSING
    """CPU threads of each process; null: this machine's cores divided by its processes."""
    timeout_s: float = MISSING
    """Seconds after which a collective that does not complete ends the job."""


@dataclass
class Config:
    run_dir: str = MISSING
    """Folder of the run's files."""
    seed: int = MISSING
    """Seeds the parameters, the dropout masks and the reordering."""
    normalization: str = MISSING
    """``sym``: D^-1/2 (A+I) D^-1/2; ``row``: D^-1 (A+I); ``none``: A+I."""
    self_loops: bool = MISSING
    """Set every diagonal entry of A to 1 before normalising."""
    dataset: Any = MISSING
    model: Any = MISSING
    scheme: Any = MISSING
    kernel: Any = MISSING
    reorder: ReorderConfig = field(default_factory=ReorderConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)


ConfigStore.instance().store(name="schema", node=Config)

_CHOICES = {
    "normalization": ("sym", "row", "none"),
    "reorder.scope": ("block", "whole"),
    "train.optimizer": ("adam", "sgd"),
    "runtime.device": ("auto", "cpu", "cuda"),
    "runtime.backend": ("auto", "gloo", "nccl"),
    "runtime.dtype": ("float32", "float64"),
}
_MINIMA = {
    "train.epochs": 1,
    "train.lr": 0,
    "train.momentum": 0,
    "train.weight_decay": 0,
    "train.eval_every": 0,
    "train.patience": 0,
    "runtime.nproc": 1,
    "runtime.threads": 1,
    "runtime.timeout_s": 1,
    "reorder.num_blocks": 1,
    "reorder.cluster_size": 1,
    "seed": 0,
}


def conf_dir() -> Path:
    """Folder of the YAML files: inside the package when it is installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"


def compose(*overrides: str) -> DictConfig:
    """Compose ``conf/config.yaml`` with Hydra ``overrides``, as the command line does.

    Raises:
        ConfigError: a key or choice does not exist, or a value has the wrong type.
    """
    try:
        with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return hydra.compose("config", overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error


def load_config(cfg: DictConfig) -> Config:
    """Resolve and check a composed configuration, and turn it into plain dataclasses and dicts.

    Raises:
        ConfigError: one line naming the key, what is wrong with it and what it may be.
    """
    try:
        OmegaConf.resolve(cfg)
        missing = sorted(OmegaConf.missing_keys(cfg))
        if missing:
            raise ConfigError(f"{missing[0]} has no value: give {missing[0]}=...")
        for key, choices in _CHOICES.items():
            value = OmegaConf.select(cfg, key)
            if value not in choices:
                raise ConfigError(f"{key}={value} is not known: choose one of {', '.join(choices)}")
        for key, minimum in _MINIMA.items():
            value = OmegaConf.select(cfg, key)
            if value is not None and not value >= minimum:
                raise ConfigError(f"{key}={value} is too small: it must be at least {minimum}")
        if cfg.seed >= 2**63:
            raise ConfigError(f"seed={cfg.seed} is too large: it must be below 2^63")
        for group in OPEN_GROUPS:
            cfg[group] = _typed(group, cfg[group])
        return typing.cast(Config, OmegaConf.to_object(cfg))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error


def build(node: Mapping[str, Any], **arguments: Any) -> Any:
    """Call the ``_target_`` of a configuration node with its keys and ``arguments``.

    ``name`` labels the choice in records; it is passed on only to a target that asks for it. With ``_partial_`` the
    call is prepared and not made.
    """
    target = hydra.utils.get_object(node["_target_"])
    keys = {key: value for key, value in node.items() if not key.startswith("_")}
    if "name" not in _parameters(target):
        keys.pop("name", None)
    if node.get("_partial_"):
        return functools.partial(target, **keys, **arguments)
    return target(**keys, **arguments)


def explain(error: Exception) -> str:
    """Say in one line what Hydra or OmegaConf found wrong, with the nearest existing key where one is misspelt."""
    text = str(error)
    cause = error.__cause__
    if isinstance(cause, OmegaConfBaseException):
        text = f"{text}: {cause}"
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown and "is not in struct" in text or unknown and "not in" in text:
        key = unknown.group(1)
        near = difflib.get_close_matches(key, _known_keys(), n=1)
        hint = f"did you mean {near[0]}?" if near else "see conf/ for the keys there are"
        return f"unknown configuration key {key}: {hint}"
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    lines = [
        line
        for line in lines
        if line and not line.startswith(("object_type", "reference_type", "Config search", "provider="))
    ]
    return "; ".join(lines).replace(":;", ":")


def _known_keys() -> list[str]:
    """Every dotted key of the default configuration, plus the keys of all other choices of its groups."""

    def flatten(node: Any, prefix: str) -> list[str]:
        if not isinstance(node, dict):
            return [prefix]
        nested = [flatten(value, f"{prefix}.{key}" if prefix else key) for key, value in node.items()]
        return [key for keys in nested for key in keys]

    keys: set[str] = set()
    for path in conf_dir().rglob("*.yaml"):
        group = ".".join(path.parent.relative_to(conf_dir()).parts)
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        keys.update(key for key in flatten(content, group) if "defaults" not in key and "hydra" not in key)
    return sorted(keys)


def _parameters(target: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(target).parameters


def _typed(group: str, node: DictConfig) -> DictConfig:
    """Check a node against the signature of its ``_target_`` and convert its values to the annotated types."""
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(f"{group}={node} is not a choice of the group {group}: it needs a _target_")
    try:
        target = hydra.utils.get_object(node["_target_"])
        parameters = _parameters(target)
    except Exception as error:
        raise ConfigError(f"{group}._target_={node['_target_']} cannot be used: {error}") from error
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    common = {"_target_", "_partial_", "name", "symmetrize"}
    fields: list[tuple[str, Any, Any]] = []
    for key in node:
        if key in parameters:
            fields.append((str(key), hints.get(str(key), Any), field(default=MISSING)))
        elif key in common:
            fields.append((str(key), bool if key in ("symmetrize", "_partial_") else str, field(default=MISSING)))
        else:
            raise ConfigError(f"{group}.{key} is not a parameter of {node['_target_']}: remove it")
    schema = OmegaConf.structured(make_dataclass(f"{group.capitalize()}Schema", fields))
    try:
        checked = OmegaConf.merge(schema, node)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{group}.{getattr(error, 'full_key', '')}: {str(error).splitlines()[0]}") from error
    return OmegaConf.create(OmegaConf.to_container(checked))
