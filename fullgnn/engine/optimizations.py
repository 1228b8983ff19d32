"""Which optimizations a model supports."""

import functools
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fullgnn.config import OptimizationConfig
from fullgnn.engine.blocks import input_propagation

log = logging.getLogger(__name__)


def applicable(
    optimizations: OptimizationConfig, model: torch.nn.Module, every_row: bool = False
) -> OptimizationConfig:
    """Decide what is ``auto``, and disable what ``model`` does not support.

    Only an optimization that was asked for, by ``true`` or ``offload=always``, is logged when it is disabled.

    A model declares its support by attributes. ``input_propagation`` is the ``Propagation`` of a matrix A, if the model
    uses its input X only as A^k @ X with the powers k of ``input_powers``, by default 1; ``cache_aggregation`` needs
    this. ``restricts_output`` means that the block of its last layer may have fewer targets; ``loss_rows_only`` needs
    this. A missing attribute counts as None and False. ``disables`` may map an optimization to the reason why this
    model does not support it, and what to set instead.

    Args:
        every_row: whether the loss reads the output of every row.

    Returns:
        the options, of which ``cache_aggregation`` and ``loss_rows_only`` are now true or false.
    """
    reasons = _reasons(optimizations, model, every_row)
    applied: dict[str, Any] = {
        option: getattr(optimizations, option) is not False and option not in reasons
        for option in ("cache_aggregation", "loss_rows_only")
    }
    if not applied["cache_aggregation"]:
        why = reasons.get("cache_aggregation", "set optimizations.cache_aggregation=auto")
        reasons["offload"] = f"only A H0 can stay on the host, and it is not cached: {why}"
        applied["offload"] = "never"
    for option, reason in reasons.items():
        if getattr(optimizations, option) in (True, "always"):
            _log_once(option, reason)
    return replace(optimizations, **applied)


def _reasons(optimizations: OptimizationConfig, model: torch.nn.Module, every_row: bool) -> dict[str, str]:
    """Why ``model`` does not support an optimization, and what to set, for each that it does not support."""
    name, of_model = type(model).__name__, _disables(model)
    reasons = {}
    if not optimizations.skip_input_gradient:
        reasons["cache_aggregation"] = (
            "optimizations.skip_input_gradient=false asks for the gradient of the features; set it to true"
        )
    elif input_propagation(model) is None:
        other = f"the first layer of {name} reads more than products of A with the features; leave this key at auto"
        reasons["cache_aggregation"] = of_model.get("cache_aggregation") or other
    if every_row:
        reasons["loss_rows_only"] = "the task reads the output of every node; leave this key at auto"
    elif not getattr(model, "restricts_output", False):
        other = f"{name} computes the output of every node; leave this key at auto"
        reasons["loss_rows_only"] = of_model.get("loss_rows_only") or other
    return reasons


def _disables(model: torch.nn.Module) -> Mapping[str, str]:
    found: Any = getattr(model, "disables", {})
    return found


@functools.cache
def _log_once(option: str, reason: str) -> None:
    """Log a disabled optimization once in a process: the planner and the run ask for the same one."""
    log.info("optimizations.%s is disabled: %s", option, reason)
