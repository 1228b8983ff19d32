"""Which optimizations a model supports."""

import functools
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fullgnn.config import OptimizationConfig
from fullgnn.engine.blocks import input_propagation
from fullgnn.prepare.facts import NodeFacts

log = logging.getLogger(__name__)


ENTRIES_OF_COLUMN = 0.05
"""``optimizations.sparse_features=auto`` takes the time of a dense product with a column of the features for that of a
sparse one with so many entries a node."""

LEAST_NUMBERS = 1 << 20
"""The numbers of all features, zeros too, from which it considers this: fewer are multiplied in little time anyway."""


def applicable(
    optimizations: OptimizationConfig,
    model: torch.nn.Module,
    every_row: bool = False,
    nodes: NodeFacts | None = None,
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
        nodes: of the graph; None: its features cannot be read as a sparse matrix, or nothing is known of it.

    Returns:
        the options, of which ``cache_aggregation``, ``loss_rows_only`` and ``sparse_features`` are now true or false.
    """
    optimizations = _with_sparse_features(optimizations, model, nodes)
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


def _with_sparse_features(
    optimizations: OptimizationConfig, model: torch.nn.Module, nodes: NodeFacts | None
) -> OptimizationConfig:
    """Decide whether the features are multiplied as a sparse matrix, and log it."""
    choice, why_not = optimizations.sparse_features, ""
    if choice is False or nodes is None or not nodes.num_features:
        return replace(optimizations, sparse_features=False)
    if not getattr(model, "reads_sparse_rows", False):
        why_not = f"the first layer of {type(model).__name__} reads more than products of the features with its weights"
    elif not optimizations.skip_input_gradient:
        why_not = "optimizations.skip_input_gradient=false asks for the gradient of the features; set it to true"
    if choice is True and why_not:
        _log_once("sparse_features", why_not)
    keeps_product = optimizations.cache_aggregation is not False and input_propagation(model) is not None
    chosen = not why_not and (choice is True or _is_faster_sparse(nodes, keeps_product))
    if chosen:
        _log_density(nodes.density)
    return replace(optimizations, sparse_features=chosen)


def _is_faster_sparse(nodes: NodeFacts, keeps_product: bool) -> bool:
    """Whether a product with the features takes less time if they are a sparse matrix.

    Args:
        keeps_product: whether A @ H0 is kept otherwise, and spares an epoch the products with A that follow X W.
    """
    if nodes.num_features * nodes.fingerprint.num_nodes < LEAST_NUMBERS:
        return False
    entries = nodes.density * nodes.num_features
    if keeps_product:
        entries += nodes.fingerprint.num_edges / nodes.fingerprint.num_nodes
    return entries <= ENTRIES_OF_COLUMN * nodes.num_features


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
    elif optimizations.sparse_features:
        reasons["cache_aggregation"] = (
            "the features are multiplied as a sparse matrix, and A @ H0 would be a dense one; set"
            " optimizations.sparse_features=false"
        )
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
def _log_density(density: float) -> None:
    log.info(
        "%.3g %% of the features are not 0: they are multiplied as a sparse matrix; optimizations.sparse_features=false"
        " multiplies all of them",
        100 * density,
    )


@functools.cache
def _log_once(option: str, reason: str) -> None:
    """Log a disabled optimization once in a process: the planner and the run ask for the same one."""
    log.info("optimizations.%s is disabled: %s", option, reason)
