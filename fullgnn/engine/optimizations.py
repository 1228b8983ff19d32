"""Which optimizations a model supports."""

import logging
from dataclasses import replace
from typing import Any

import torch

from fullgnn.config import OptimizationConfig

log = logging.getLogger(__name__)


def applicable(optimizations: OptimizationConfig, model: torch.nn.Module) -> OptimizationConfig:
    """Disable, and log on rank 0, the optimizations that ``model`` does not support.

    A model states what it supports by two attributes: ``aggregates_input``, that it uses its input only as A @ X, and
    ``restricts_output``, that its last layer needs only the rows that it returns. A model without these attributes
    supports neither ``cache_aggregation`` nor ``loss_rows_only``.
    """
    reasons = {}
    if optimizations.cache_aggregation:
        if not optimizations.skip_input_gradient:
            reasons["cache_aggregation"] = (
                "optimizations.skip_input_gradient=false asks for the gradient of the features"
            )
        elif not getattr(model, "aggregates_input", False):
            reasons["cache_aggregation"] = "the model reads its input itself, or drops some of it (model.input_dropout)"
    if optimizations.loss_rows_only and not getattr(model, "restricts_output", False):
        reasons["loss_rows_only"] = "the last layer of this model is not a product that rows can be left out of"
    off: dict[str, Any] = dict.fromkeys(reasons, False)
    if optimizations.offload != "never" and (not optimizations.cache_aggregation or "cache_aggregation" in reasons):
        off["offload"] = "never"
        if optimizations.offload == "always":
            reasons["offload"] = "only A @ H0 can stay on the host, and here it is not computed once"
    for option, reason in reasons.items():
        log.info("optimizations.%s is disabled: %s", option, reason)
    return replace(optimizations, **off)
