"""Metrics that ``train_graph`` is given as functions: in the configuration, their dotted names stand for them.

A function that other processes can import has its own name, so that a run of several processes calls it too. Any other
one, such as a lambda, has a name that is known in this process alone.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fullgnn.errors import ConfigError


@dataclass(frozen=True)
class GivenMetrics:
    """Functions by the name of their metric."""

    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.functions, Mapping) or not all(map(callable, self.functions.values())):
            raise ConfigError('metrics takes functions by name, as in metrics={"mcc": function}')

    @property
    def targets(self) -> dict[str, Any]:
        """What the names in the configuration stand for in this process; see ``given_targets``."""
        return {_name(metric, function): function for metric, function in self.functions.items()}

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The keys of a run that name the functions."""
        nodes = {metric: {"_target_": _name(metric, function)} for metric, function in self.functions.items()}
        return [{"task.own_metrics": nodes}] if nodes else []

    @property
    def why_only_here(self) -> str:
        """Why no other process can call one of them, and what to do about it; empty: others can."""
        for metric, function in self.functions.items():
            if not _is_importable(function):
                return f"the function of the metric {metric} has no name in a module: move it to a module"
        return ""


def _is_importable(function: Callable[..., Any]) -> bool:
    """Whether another process finds the function by the name of its module and its own."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    return module not in (None, "__main__") and getattr(sys.modules.get(module), name, None) is function


def _name(metric: str, function: Callable[..., Any]) -> str:
    if not _is_importable(function):
        return f"given.{metric}"
    return f"{function.__module__}.{function.__qualname__}"
