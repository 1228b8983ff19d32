"""Which optimizations a model supports."""

import logging
from dataclasses import replace
from typing import Any

import torch

from fullgnn.config import OptimizationConfig
from fullgnn.engine.blocks import input_propagation

log = logging.getLogger(__name__)


def applicable(
    optimizations: OptimizationConfig, model: torch.nn.Module, every_row: bool = False
) -> OptimizationConfig:
    """Disable, and log on rank 0, the optimizations that ``model`` does not support.

    A model declares its support by attributes. ``input_propagation`` is the ``Propagation`` of a matrix A, if the model
    uses its input X only as A^k @ X with the powers k of ``input_powers``, by default 1; ``cache_aggregation`` needs
    this. ``restricts_output`` means that the block of its last layer may have fewer targets; ``loss_rows_only`` needs
    this. A missing attribute counts as None and False.

    Args:
        every_row: whether the loss reads the output of every row.
    """
    reasons = {}
    if optimizations.cache_aggregation:
        if not optimizations.skip_input_gradient:
            reasons["cache_aggregation"] = (
                "optimizations.skip_input_gradient=false asks for the gradient of the features"
            )
        elif input_propagation(model) is None:
            reasons["cache_aggregation"] = (
                "the model needs the features themselves (a GCN with model.input_dropout=0 does not)"
            )
    if optimizations.loss_rows_only and every_row:
        reasons["loss_rows_only"] = "the task reads the output of every node"
    elif optimizations.loss_rows_only and not getattr(model, "restricts_output", False):
        reasons["loss_rows_only"] = "the last layer of this model cannot compute some rows alone"
    off: dict[str, Any] = dict.fromkeys(reasons, False)
    if optimizations.offload != "never" and (not optimizations.cache_aggregation or "cache_aggregation" in reasons):
        off["offload"] = "never"
        if optimizations.offload == "always":
            reasons["offload"] = "only A @ H0 can stay on the host, and cache_aggregation is off"
    for option, reason in reasons.items():
        log.info("optimizations.%s is disabled: %s", option, reason)
    return replace(optimizations, **off)
