"""Metrics of a user's own: functions of the predictions and the labels of all nodes of a split.

Such a function may compute anything of whole columns, so the rows of all nodes come together on rank 0, in the original
order of the nodes, and the function is called there. Every rank gets its number. A run without such metrics gathers
nothing.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from fullgnn.config import target_of
from fullgnn.distributed import broadcast_object, from_rank0, in_dry_run
from fullgnn.errors import ConfigError, reason_of
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.tasks.task import SPLITS

OUTPUT = "output"
"""The parameter of a function that is given the outputs of the model, too."""


class OwnMetrics:
    """The functions of a user by name, each called as ``function(predictions, labels)``; see docs/configuration.md.

    Args:
        nodes: by name, a mapping whose ``_target_`` names the function.
        taken: names of other metrics.

    Raises:
        ConfigError: a name or a function cannot be used.
    """

    def __init__(self, nodes: Mapping[str, Any], taken: tuple[str, ...]):
        self._functions: dict[str, Callable[..., Any]] = {}
        for name, node in nodes.items():
            if not str(name).isidentifier() or name in taken:
                why = "is a metric of the task" if name in taken else "is no name"
                raise ConfigError(f"task.own_metrics: {name} {why}: choose another name")
            self._functions[name] = _function(name, node)

    def measure(
        self, prediction: Tensor, output: Tensor, graph: ShardedGraph, scheme: Scheme
    ) -> dict[str, float | None]:
        """The metrics of each split, the same on every rank. Every rank calls it.

        Args:
            prediction: what the task predicts for the rows of this rank.
            output: (num_local_nodes, num_outputs), of the model.
        """
        if in_dry_run():  # which has no other ranks
            return {f"{split}_{name}": None for split in SPLITS for name in self._functions}
        rows = {"prediction": prediction, "labels": graph.labels, "masks": graph.masks.T.contiguous()}
        if any(_takes_output(function) for function in self._functions.values()):
            rows[OUTPUT] = output
        parts = list(scheme.gather_parts(rows))
        return broadcast_object(from_rank0(lambda: self._of_columns(parts)))

    def _of_columns(self, parts: list[dict[str, np.ndarray]]) -> dict[str, float | None]:
        """The metrics of gathered rows."""
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.argsort(joined.pop("node_id"), kind="stable")
        masks = joined.pop("masks")[order]
        columns = {name: _flat(rows[order]) for name, rows in joined.items()}
        measured: dict[str, float | None] = {}
        for number, split in enumerate(SPLITS):
            of_split = {name: rows[masks[:, number]] for name, rows in columns.items()}
            for name, function in self._functions.items():
                measured[f"{split}_{name}"] = _value(name, function, of_split) if masks[:, number].any() else None
        return measured


def without_own_metrics(node: Any) -> tuple[Any, list[str]]:
    """The ``node`` of a task of fullgnn that was read from a file, without the functions that it names, which nobody
    has asked to call; and the names of their metrics."""
    is_ours = isinstance(node, dict) and str(node.get("_target_")).startswith("fullgnn.tasks.")
    own = node.get("own_metrics") if is_ours else None
    if not isinstance(own, dict):
        return node, []
    metrics = node.get("metrics")
    if isinstance(metrics, list):
        metrics = [name for name in metrics if name not in own] or None
    return {**node, "own_metrics": None, "metrics": metrics}, list(own)


def _flat(rows: np.ndarray) -> np.ndarray:
    """A single column as one dimension."""
    return rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows


def _value(name: str, function: Callable[..., Any], columns: Mapping[str, np.ndarray]) -> float | None:
    given = {OUTPUT: columns[OUTPUT]} if _takes_output(function) else {}
    try:
        value = function(columns["prediction"], columns["labels"], **given)
        number = None if value is None else float(value)
    except Exception as error:  # the function is a user's
        raise ConfigError(f"the metric {name} cannot be computed: its function raised {reason_of(error)}") from error
    return number if number is not None and math.isfinite(number) else None


def _function(name: str, node: Any) -> Callable[..., Any]:
    """The function that a node of ``own_metrics`` names."""
    if not isinstance(node, Mapping) or set(node) != {"_target_"}:
        raise ConfigError(
            f"task.own_metrics.{name}={node} names no function: give {{_target_: package.module.function}}, or from"
            " Python train_graph(..., metrics={...})"
        )
    try:
        function = target_of(node)
    except Exception as error:
        raise ConfigError(f"task.own_metrics.{name}._target_ cannot be imported: {reason_of(error)}") from error
    if not callable(function):
        raise ConfigError(f"task.own_metrics.{name}._target_={node['_target_']} is no function")
    return function


def _takes_output(function: Callable[..., Any]) -> bool:
    """Whether the function has a parameter ``output``."""
    try:
        return OUTPUT in inspect.signature(function).parameters
    except (TypeError, ValueError):  # one that is written in C
        return False
