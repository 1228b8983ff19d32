"""Checks of a run against its configuration, and the optimizations that it may use.

What no graph could make right is refused before anything is loaded. Optimizations that the model does not support, and
CUDA graphs where they cannot be captured, are disabled.
"""

import functools
import inspect
import logging
from dataclasses import replace
from typing import Any

import torch

from fullgnn.config import Config, OptimizationConfig, build, target_of
from fullgnn.distributed import World
from fullgnn.engine.cuda_graph import Replay
from fullgnn.errors import ConfigError
from fullgnn.graph import check_dataset, dataset_lacks
from fullgnn.graph.datasets import is_drawn
from fullgnn.graph.labels import LabelFacts
from fullgnn.graph.links import LinkFacts
from fullgnn.kernels.support import gpu
from fullgnn.nn.contract import Contract, check_contract, contract_of, trial_model
from fullgnn.partition.facts import NodeFacts
from fullgnn.tasks import build_task, learns_labels, refuse_for_links, refuse_without_examples, takes_links
from fullgnn.telemetry.machine import memory_bytes

log = logging.getLogger(__name__)

ENTRIES_OF_COLUMN = 0.05
"""``optimizations.sparse_features=auto`` takes the time of a dense product with a column of the features for that of a
sparse one with so many entries a node."""

LEAST_NUMBERS = 1 << 20
"""The numbers of all features, zeros too, from which it considers this: fewer are multiplied in little time anyway."""


def check_preparation(cfg: Config) -> None:
    """Refuse an invalid kernel, model or task, or a partition and an order that contradict each other; loads nothing.

    Raises:
        ConfigError: one line, the same in every process that calls this function.
    """
    from fullgnn.reorder import check_order

    check_order(build(cfg.partition), cfg.reorder.scope, cfg.reorder.num_blocks)
    build(cfg.kernel)  # on trial: raises if one of its keys is wrong
    check_model_fits(cfg, 1, 0, torch.device("cpu"))
    _check_constructor(cfg)
    model = trial_model(cfg)
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"model={cfg.model['name']} is a {type(model).__name__}: a model must be a torch.nn.Module")
    _check_task(cfg)
    check_contract(model)
    check_goal(cfg, model)


def _check_constructor(cfg: Config) -> None:
    """Refuse a model that cannot be called with its keys and with what every model gets.

    Raises:
        ConfigError: one line that says which argument the target lacks, or does not get.
    """
    target = target_of(cfg.model)
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # a target that is written in C
        return
    keys = {key: value for key, value in cfg.model.items() if not key.startswith("_")}
    if "name" not in signature.parameters:
        keys.pop("name", None)
    try:
        signature.bind(**keys, in_channels=1, out_channels=1, seed=0)
    except TypeError as error:
        raise ConfigError(
            f"model={cfg.model['name']}: {getattr(target, '__name__', target)}() {error}; a model takes in_channels,"
            " out_channels and seed, and its own keys, those without a default from the configuration"
        ) from error


def check_model_fits(cfg: Config, in_channels: int, num_nodes: int, device: torch.device) -> None:
    """Refuse a model whose matrices, vectors of nodes or outputs take more than all memory of ``device``, before it is
    built.

    Counted are those of the keys that nearly all models have, and of ``task.channels``; a model of a user may have
    others.

    Args:
        in_channels: features of a node.
        num_nodes: those for which a rank has trainable vectors; 0: not known.

    Raises:
        ConfigError: one line with the bytes.
    """
    sizes = {"hidden_channels": 1, "heads": 1, "num_layers": 2, "embedding_channels": 0}
    given = {key: value for key in sizes if isinstance(value := cfg.model.get(key), int) and value > 0}
    hidden, heads, depth, embedding = (sizes | given).values()
    width, channels = hidden * heads, cfg.task.get("channels")
    count = num_nodes * embedding + (in_channels + embedding) * width + max(0, depth - 2) * width**2
    if isinstance(channels, int):
        count += channels * (num_nodes + width)
    num_bytes = count * getattr(torch, cfg.runtime.dtype).itemsize
    if num_bytes > memory_bytes(device):
        named = ", ".join(f"model.{key}={value}" for key, value in given.items())
        named += "" if channels is None else f", task.channels={channels}"
        raise ConfigError(
            f"{named}: the parameters take {num_bytes} bytes or more, and {device.type} has {memory_bytes(device)}"
            " bytes of memory: choose smaller sizes"
        )


def check_training_data(cfg: Config) -> None:
    """Refuse a dataset whose files are missing, or show that there is nothing to train on; loads nothing large.

    Raises:
        ConfigError, DataError: one line.
    """
    check_dataset(cfg.dataset)
    if is_drawn(split := cfg.dataset.get("split")):
        refuse_for_links(cfg.task, f"dataset.split={split}")
    if learns_labels(cfg.task):
        what = cfg.dataset.get("path") or f"dataset={cfg.dataset.get('name')}"
        refuse_without_examples(cfg.task, what, dataset_lacks(cfg.dataset))


def check_goal(cfg: Config, model: torch.nn.Module) -> None:
    """Refuse a task of nodes for a model that is made for links.

    Raises:
        ConfigError: one line that names both.
    """
    if contract_of(model).finds_links and not takes_links(cfg.task):
        raise ConfigError(
            f"model={cfg.model['name']} learns links, and task={cfg.task['name']} does not: choose task=link_ranking or"
            " task=link_prediction"
        )


def _check_task(cfg: Config) -> None:
    """Refuse a task whose keys are out of range for any graph."""
    if takes_links(cfg.task):
        build_task(cfg.task, LabelFacts(0), LinkFacts(2, 1))
        return
    given = cfg.task.get("class_weight")
    num_classes = len(given) if isinstance(given, list) else 2
    counts = (1,) * num_classes
    one_class = LabelFacts(num_classes, train_known=(num_classes,), class_counts=counts)
    several = LabelFacts(num_classes, num_classes, binary=True, train_known=counts, train_sum=counts)
    refused: list[ConfigError] = []
    for labels in (one_class, several):
        try:
            build_task(cfg.task, labels, None)
            return
        except ConfigError as error:
            refused.append(error)
        except Exception:  # a task of a user may want other labels
            return
    raise refused[0]


def check_deterministic(cfg: Config, device: torch.device) -> None:
    """Check that ``cfg`` can be deterministic on ``device``, if ``runtime.deterministic`` requests it.

    Raises:
        ConfigError: a choice of ``cfg`` is not deterministic; the same on every rank.
    """
    if not cfg.runtime.deterministic:
        return
    if cfg.scheme["name"] == "auto" and cfg.scheme["hardware"] == "auto":
        raise ConfigError(
            "runtime.deterministic=true: scheme=auto chooses by timings of this machine: name a scheme, or a "
            "profile with scheme.hardware=..."
        )
    if device.type != "cuda":
        return
    from fullgnn.kernels.spmm import AutoKernel, TorchCSR

    kernel = build(cfg.kernel)
    if isinstance(kernel, TorchCSR):
        raise ConfigError(
            "runtime.deterministic=true: kernel=torch is cuSPARSE on a GPU, which may differ from run to run: use "
            "kernel=auto, csr, packed or tile32"
        )
    if isinstance(kernel, AutoKernel) and not gpu.runs_triton(device):
        raise ConfigError(
            "runtime.deterministic=true: without Triton 3.6 or later, kernel=auto is cuSPARSE on a GPU, which may "
            "differ from run to run: install Triton, which torch 2.10 brings"
        )


def replay_for(choice: str, world: World) -> Replay:
    """Decide from ``runtime.cuda_graph`` (``choice``), the device and the backend whether the step may be replayed."""
    if choice == "never":
        return Replay(None, "runtime.cuda_graph=never")
    if world.device.type != "cuda":
        return Replay(None, "the device is a CPU")
    if world.size > 1 and world.backend != "nccl":
        return Replay(None, f"the ranks exchange over {world.backend}, which a CUDA graph cannot capture")
    from fullgnn.kernels.support.cuda_graph import CudaGraph

    return Replay(CudaGraph)


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
            log_once(option, reason)
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
        log_once("sparse_features", why_not)
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
def log_once(option: str, reason: str) -> None:
    """Log a disabled optimization once in a process: the planner and the run ask for the same one."""
    log.info("optimizations.%s is disabled: %s", option, reason)
