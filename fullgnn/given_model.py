"""A model that ``train_graph`` is given as a class, a function or an instance, instead of the name of a choice.

In the configuration its ``_target_`` is the dotted name of the class, so that ranks in other processes, a resumed run
and a prediction call the same one, where it can be imported. In this process the name stands for the object itself.
"""

import copy
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from fullgnn.config import Config
from fullgnn.config.overrides import as_overrides, quote
from fullgnn.engine.state import sharded_names
from fullgnn.errors import ConfigError
from fullgnn.nn.contract import check_contract

Setting = str | Mapping[str, Any]

_TARGET = "_target_"


@dataclass(frozen=True)
class GivenModel:
    """A model as an object."""

    model: Any

    @property
    def is_instance(self) -> bool:
        return isinstance(self.model, torch.nn.Module)

    @property
    def of_class(self) -> Any:
        """What is called to build the model; of an instance, its class."""
        return type(self.model) if self.is_instance else self.model

    @property
    def name(self) -> str:
        """The ``_target_`` of the configuration."""
        return f"{self.of_class.__module__}.{self.of_class.__qualname__}"

    @property
    def targets(self) -> dict[str, Any]:
        """What the name stands for in this process; see ``given_targets``."""
        return {self.name: self._copied if self.is_instance else self.model}

    @property
    def why_only_here(self) -> str:
        """Why no other process can build the model, and what to do about it; empty: others can."""
        label = self.of_class.__qualname__
        if self.is_instance:
            return f"model is an instance of {label}: pass the class, as in model={{'_target_': {label}, ...}}"
        if self.of_class.__module__ == "__main__":
            return f"model={label} is of __main__, the script or the notebook: move it to a module"
        if getattr(sys.modules.get(self.of_class.__module__), label, None) is not self.model:
            return f"model={label} is no name in its module, such as a class in a function: move it to a module"
        return ""

    def check(self, cfg: Config) -> None:
        """Refuse an instance that the run of ``cfg`` cannot train.

        Raises:
            ConfigError: one line that says what to change.
        """
        if not self.is_instance:
            return
        label = self.of_class.__name__
        check_contract(self.model)
        if sharded_names(self.model):
            raise ConfigError(
                f"model is an instance of {label}, which trains a vector for each node of the graph: pass the class,"
                f" as in model={{'_target_': {label}, ...}}, since these vectors are made by the run"
            )
        dtypes = {value.dtype for value in self.model.parameters() if value.dtype.is_floating_point}
        if dtypes - {getattr(torch, cfg.runtime.dtype)}:
            names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
            raise ConfigError(
                f"the instance of {label} has parameters of {names}, and runtime.dtype={cfg.runtime.dtype}: set"
                " runtime.dtype to the same, or convert the instance, as model.float() does"
            )

    def take(self, trained: torch.nn.Module) -> None:
        """Give the instance the parameters and buffers of its ``trained`` copy."""
        if self.is_instance:
            self.model.load_state_dict(trained.state_dict())

    def _copied(self, in_channels: int, out_channels: int, seed: int) -> torch.nn.Module:
        """A copy of the instance, which a run may move, train or throw away."""
        return copy.deepcopy(self.model)


def with_given_model(settings: Iterable[Setting]) -> tuple[list[str], GivenModel | None]:
    """``settings`` as overrides, and the model that they give as an object, if they do. The later of two models holds.

    Raises:
        ConfigError: a setting or a value has a type that no key takes.
    """
    overrides, given, label = list[str](), None, ""
    for setting in settings:
        model, name, rest = _without_object(setting) if isinstance(setting, Mapping) else (None, "", setting)
        new = as_overrides([rest])
        if model is not None:
            given, label = GivenModel(model), name
            overrides = [override for override in overrides if _key(override) != "model"]
        elif any(_key(override) == "model" for override in new):
            given, overrides = None, [override for override in overrides if given is None or not _is_of_model(override)]
        overrides += new
    if given is None:
        return overrides, None
    own = {_TARGET: given.name, "name": label or given.of_class.__name__}
    begin = ["~model", *(f"++model.{key}={quote(value)}" for key, value in own.items())]
    return [*begin, *(_forced(override) for override in overrides)], given


def _without_object(setting: Mapping[str, Any]) -> tuple[Any, str, Mapping[str, Any]]:
    """The model that a mapping gives as an object, its label, and the other keys; None: it gives none."""
    for key in ("model", f"model.{_TARGET}"):
        if _is_model(setting.get(key)):
            return setting[key], "", {name: value for name, value in setting.items() if name != key}
    node = setting.get("model")
    if not isinstance(node, Mapping) or not _is_model(node.get(_TARGET)):
        return None, "", setting
    keys = {name: value for name, value in node.items() if name not in (_TARGET, "name")}
    return node[_TARGET], str(node.get("name") or ""), {**setting, "model": keys}


def _is_model(value: Any) -> bool:
    return inspect.isclass(value) or isinstance(value, (FunctionType, torch.nn.Module))


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def _is_of_model(override: str) -> bool:
    return f"{_key(override)}.".startswith("model.")


def _forced(override: str) -> str:
    """An override of a key of the model, which no YAML file has."""
    return f"++{override.lstrip('+')}" if _is_of_model(override) and not override.startswith("~") else override
