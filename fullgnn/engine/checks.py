"""Refuse, before anything is loaded, what no graph could make right."""

import inspect

import torch

from fullgnn.config import Config, build, target_of
from fullgnn.errors import ConfigError
from fullgnn.graph import check_dataset, dataset_lacks
from fullgnn.graph.datasets.common_split import is_drawn
from fullgnn.graph.labels import LabelFacts
from fullgnn.graph.links import LinkFacts
from fullgnn.kernels.support import gpu
from fullgnn.nn.contract import check_contract, contract_of
from fullgnn.tasks import build_task, learns_labels, refuse_for_links, refuse_without_examples, takes_links
from fullgnn.telemetry.machine import memory_bytes


def check_preparation(cfg: Config) -> None:
    """Refuse an invalid kernel, model or task, or a partition and an order that contradict each other; loads nothing.

    Raises:
        ConfigError: one line, the same in every process that calls this function.
    """
    from fullgnn.reorder import check_order

    check_order(build(cfg.partition), cfg.reorder.scope, cfg.reorder.num_blocks)
    build(cfg.kernel)  # raises if one of its keys is wrong
    check_model_fits(cfg, 1, 0, torch.device("cpu"))
    _check_constructor(cfg)
    model = build(cfg.model, in_channels=1, out_channels=1, seed=cfg.seed)  # raises if a size or a rate is wrong
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
        except ConfigError as error:
            refused.append(error)
        except Exception:  # a task of a user may want other labels
            continue
    if len(refused) == 2:
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
