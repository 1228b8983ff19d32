"""Which of the ways to do less work a model allows."""

import logging
from dataclasses import replace
from typing import Any

import torch

from fullgnn.config import WorkConfig

log = logging.getLogger(__name__)


def applicable(work: WorkConfig, model: torch.nn.Module) -> WorkConfig:
    """``work`` without what does not hold for ``model``; each thing that is left off is said once, by rank 0.

    A model states what holds for it: ``aggregates_input``, that its input is used only as A @ X, and
    ``restricts_output``, that its last layer needs no other rows than those asked for. A model that states nothing gets
    neither.
    """
    reasons = {}
    if work.cache_aggregation:
        if not work.skip_input_gradient:
            reasons["cache_aggregation"] = "work.skip_input_gradient=false asks for the gradient of the features"
        elif not getattr(model, "aggregates_input", False):
            reasons["cache_aggregation"] = "the model reads its input itself, or drops some of it (model.input_dropout)"
    if work.loss_rows_only and not getattr(model, "restricts_output", False):
        reasons["loss_rows_only"] = "the last layer of this model is not a product that rows can be left out of"
    off: dict[str, Any] = dict.fromkeys(reasons, False)
    if work.offload != "never" and (not work.cache_aggregation or "cache_aggregation" in reasons):
        off["offload"] = "never"
        if work.offload == "always":
            reasons["offload"] = "only A @ H0 can stay on the host, and here it is not computed once"
    for option, reason in reasons.items():
        log.info("work.%s is off: %s", option, reason)
    return replace(work, **off)
