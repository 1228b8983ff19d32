"""Which optimizations a model supports."""

import functools
import logging
from dataclasses import replace
from typing import Any

import torch

from fullgnn.config import OptimizationConfig
from fullgnn.nn import Contract, contract_of
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

    A model declares its support in its ``Contract``: ``cache_aggregation`` needs an ``input_propagation``, and
    ``loss_rows_only`` needs ``restricts_output``.

    Args:
        every_row: whether the loss reads the output of every row.
        nodes: of the graph; None: its features cannot be read as a sparse matrix, or nothing is known of it.

    Returns:
        the options, of which ``cache_aggregation``, ``loss_rows_only`` and ``sparse_features`` are now true or false.
    """
    name, contract = type(model).__name__, contract_of(model)
    optimizations = _with_sparse_features(optimizations, name, contract, nodes)
    reasons = _reasons(optimizations, name, contract, every_row)
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
    optimizations: OptimizationConfig, name: str, contract: Contract, nodes: NodeFacts | None
) -> OptimizationConfig:
    """Decide whether the features are multiplied as a sparse matrix, and log it."""
    choice, why_not = optimizations.sparse_features, ""
    if choice is False or nodes is None or not nodes.num_features:
        return replace(optimizations, sparse_features=False)
    if not contract.reads_sparse_rows:
        why_not = f"the first layer of {name} reads more than products of the features with its weights"
    elif not optimizations.skip_input_gradient:
        why_not = "optimizations.skip_input_gradient=false asks for the gradient of the features; set it to true"
    if choice is True and why_not:
        _log_once("sparse_features", why_not)
    keeps_product = optimizations.cache_aggregation is not False and contract.input_propagation is not None
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


def _reasons(optimizations: OptimizationConfig, name: str, contract: Contract, every_row: bool) -> dict[str, str]:
    """Why a model of the class ``name`` does not support an optimization, and what to set, for each that it does not
    support."""
    reasons = {}
    if not optimizations.skip_input_gradient:
        reasons["cache_aggregation"] = (
            "optimizations.skip_input_gradient=false asks for the gradient of the features; set it to true"
        )
    elif contract.input_propagation is None:
        other = f"the first layer of {name} reads more than products of A with the features; leave this key at auto"
        reasons["cache_aggregation"] = contract.disables.get("cache_aggregation") or other
    elif optimizations.sparse_features:
        reasons["cache_aggregation"] = (
            "the features are multiplied as a sparse matrix, and A @ H0 would be a dense one; set"
            " optimizations.sparse_features=false"
        )
    if every_row:
        reasons["loss_rows_only"] = "the task reads the output of every node; leave this key at auto"
    elif not contract.restricts_output:
        other = f"{name} computes the output of every node; leave this key at auto"
        reasons["loss_rows_only"] = contract.disables.get("loss_rows_only") or other
    return reasons


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
