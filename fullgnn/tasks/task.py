"""The interface between a task and the training of a model, and what a task says of itself before it is built.

The ``_target_`` of a task is a class, or a function that returns an instance. A class states its ``TaskContract`` in a
class attribute ``contract``; a function is decorated with ``states``. A task that says nothing learns from nodes, in
full batches.
"""

import inspect
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from fullgnn.config import build, target_of
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.graph.datasets import SPLIT_CURE
from fullgnn.graph.labels import LabelFacts, is_labelled
from fullgnn.graph.links import LinkFacts
from fullgnn.schemes.base import Scheme, ShardedGraph

log = logging.getLogger(__name__)

SPLITS = ("train", "val", "test")
WEIGHTED_DEFAULT = ("macro_f1", "accuracy")
"""The metrics of one class a node where weights tell the classes apart."""


class Task(Protocol):
    """What a model learns. Every rank of a run has an equal task."""

    num_outputs: int  # columns of the model's output
    metrics: tuple[str, ...]  # names of the metrics; the first one chooses the best epoch

    def targets(self, labels: Tensor) -> Tensor:
        """Convert ``labels`` of some nodes, as ``Graph.labels`` stores them, to what ``loss`` and ``measure`` read."""

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """This rank's part of the loss, a differentiable scalar.

        The part is a sum over this rank's training nodes, divided by a normaliser of the whole graph. So the sum of the
        parts is the loss, on any number of ranks. A rank without training nodes contributes 0, and does not call this
        function, see ``part_of_loss``.

        Args:
            output: (num_local_train, num_outputs), what the model computes for this rank's training nodes.
            targets: of these nodes.
        """

    def measure(self, output: Tensor, graph: ShardedGraph, scheme: Scheme) -> dict[str, float | None]:
        """The metrics of each split of the whole graph. Every rank calls it and gets the same numbers.

        Args:
            output: (num_local_nodes, num_outputs), without dropout.

        Returns:
            by split and name, as ``val_accuracy``, in the order of ``metrics``; None where a split has no nodes, or the
            metric is not a finite number.
        """

    def is_better(self, metric: float, best: float) -> bool:
        """Whether ``metric``, a value of the first metric, is strictly better than ``best``. NaN is never better, and
        any number is better than NaN."""

    def prediction(self, output: Tensor) -> Tensor:
        """What the task predicts from an (n, num_outputs) output: (n,), or (n, num_outputs)."""


class NodeTask(Task, Protocol):
    """A task that batches of training nodes can learn, each batch with a normaliser of its own. Its contract says
    ``learns_batches``."""

    def loss(self, output: Tensor, targets: Tensor, total: float | None = None) -> Tensor:
        """See ``Task.loss``.

        Args:
            total: the normaliser, see ``total``; None: that of all training nodes.
        """

    def total(self, targets: Tensor) -> float:
        """What the sum of the losses of some nodes is divided by, so that the loss is their mean."""


@runtime_checkable
class CountsConfusion(Protocol):
    """A task that can count which classes are taken for which."""

    counts_confusion: bool  # whether a run asks for it

    def confusion(self, output: Tensor, graph: ShardedGraph, scheme: Scheme) -> dict[str, list[list[int]]]:
        """By split, how many nodes of each class (a row) each class is predicted for (a column); without splits that
        have no node. Every rank calls it, and gets the same numbers."""


TaskTarget = TypeVar("TaskTarget", bound=Callable[..., Any])


@dataclass(frozen=True)
class TaskContract:
    """What a task says of itself.

    Raises:
        TypeError: a field of another name.
    """

    finds_links: bool = False
    """Whether the task finds links: it is built with ``links``, the ``LinkFacts`` of the graph, in place of
    ``labels``, and derives from ``LinkTask``."""
    learns_labels: bool = False
    """Whether a graph without labelled training nodes can be refused before the task is built."""
    learns_batches: bool = False
    """Whether batches of training nodes can learn the task, see ``NodeTask``."""
    hold_out: Callable[..., Graph] | None = None
    """Takes edges out of the graph before anything else sees it: a function of the graph and of some of the task's
    keys."""


@runtime_checkable
class StatesTaskContract(Protocol):
    """A task, or the target of one, that says something of itself."""

    contract: TaskContract


class OwnLossStatesAnew:
    """A base of tasks that batches can learn. A class that derives from one and replaces its ``loss`` learns full
    batches alone, unless it states a ``contract`` of its own: its loss may not take the normaliser of a batch."""

    contract = TaskContract(learns_batches=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "loss" in vars(cls) and "contract" not in vars(cls):
            cls.contract = replace(cls.contract, learns_batches=False)


def states(contract: TaskContract) -> Callable[[TaskTarget], TaskTarget]:
    """Decorate a function that builds a task with the ``contract`` of the task."""

    def decorate(target: TaskTarget) -> TaskTarget:
        target.contract = contract  # type: ignore[attr-defined]
        return target

    return decorate


def task_contract(task: object) -> TaskContract:
    """What ``task``, a task or the target of one, says of itself."""
    return task.contract if isinstance(task, StatesTaskContract) else TaskContract()


def part_of_loss(task: Task, output: Tensor, targets: Tensor, *total: float) -> Tensor:
    """This rank's part of the loss of ``task``; 0 without nodes, of which a mean is NaN, and of which some losses of
    torch return memory that nobody has written."""
    return task.loss(output, targets, *total) if len(output) else output.sum()


def normalized_sum(losses: Tensor, normalizer: float) -> Tensor:
    """The sum of this rank's ``losses``, added in float64, over the normaliser of the whole graph."""
    return (losses.sum(dtype=torch.float64) / normalizer).to(losses.dtype)


def chosen_metrics(given: Sequence[str] | None, known: Sequence[str], own: Collection[str] = ()) -> tuple[str, ...]:
    """The metrics of a task: those ``given``, or all that are ``known``; and then those of a user's ``own`` that are
    not given by name.

    Raises:
        ConfigError: a metric is not known, or none is given.
    """
    names = tuple(known if given is None else given)
    known = (*known, *own)
    if any(name not in known for name in names) or not names:
        raise ConfigError(
            f"task.metrics={list(names)}: choose at least one of {', '.join(known)}; the first chooses the best epoch"
        )
    return (*names, *(name for name in own if name not in names))


def by_split(names: Sequence[str], metrics: dict[str, float | None]) -> dict[str, float | None]:
    """The metrics ``names`` of every split, taken from ``metrics``, in the order of ``Task.measure``.

    A metric that is not finite, since outputs are not, becomes None.
    """
    values = {f"{split}_{name}": metrics[f"{split}_{name}"] for name in names for split in SPLITS}
    return {name: value if value is not None and math.isfinite(value) else None for name, value in values.items()}


def is_larger(metric: float, best: float) -> bool:
    """``Task.is_better`` of a metric of which a larger value is better."""
    return metric > best or (math.isnan(best) and not math.isnan(metric))


def is_smaller(metric: float, best: float) -> bool:
    """``Task.is_better`` of a metric of which a smaller value is better."""
    return is_larger(-metric, -best)


def check_trainable(labels: LabelFacts) -> None:
    """Refuse a graph without training nodes or labels.

    Raises:
        DataError: one line that says what is missing.
    """
    if not labels.num_train:
        raise DataError("train_mask is empty: at least one node is needed to train on")
    if not any(labels.train_known):
        raise DataError("the graph has no labels, which this task learns: pass labels")


def takes_links(node: Mapping[str, Any]) -> bool:
    """Whether the task of a configuration ``node`` finds links."""
    return task_contract(target_of(node)).finds_links


def learns_labels(node: Mapping[str, Any]) -> bool:
    """Whether the task of a configuration ``node`` says that it learns from labelled training nodes."""
    return task_contract(target_of(node)).learns_labels


def lacks_examples(graph: Graph) -> list[str]:
    """Which of ``labels`` and ``train_mask`` the ``graph`` lacks."""
    present = {"labels": is_labelled(graph.labels).any(), "train_mask": graph.train_mask.any()}
    return [name for name in present if not present[name]]


def refuse_without_examples(node: Mapping[str, Any], what: str, lacks: Sequence[str], cure: str = "") -> None:
    """Refuse a graph that ``lacks`` something from which the task of a configuration ``node`` learns.

    Args:
        what: the graph, for the message.
        cure: what to do about it; empty: what is true of any dataset.

    Raises:
        DataError: one line that says what is missing, and the ``cure``.
    """
    if not lacks or not learns_labels(node):
        return
    if not cure and "labels" in lacks:
        cure = f"write it with {' and '.join(lacks)}, or choose task=link_prediction, which learns from edges alone"
    elif not cure:
        cure = f"write it with a train_mask that has nodes, or {SPLIT_CURE}"
    raise DataError(
        f"{what} has no {' and no '.join(lacks)}, and task={node['name']} learns from labelled nodes: {cure}"
    )


def refuse_for_links(node: Mapping[str, Any], given: str) -> None:
    """Refuse the keys of a split of nodes, which are ``given``, for the task of a configuration ``node`` that finds
    links.

    Raises:
        ConfigError: one line.
    """
    if not learns_labels(node) and takes_links(node):
        raise ConfigError(
            f"{given} would do nothing, since task={node['name']} learns from edges, and task.val_fraction holds some"
            " of them out: leave out what is given"
        )


def build_task(node: Mapping[str, Any], labels: LabelFacts, links: LinkFacts | None) -> Task:
    """Build the task of a configuration ``node`` for a graph.

    Args:
        links: None only for a task that does not take them.

    Raises:
        ConfigError: a key is out of range.
        DataError: the graph is not one that the task can learn.
    """
    if not takes_links(node):
        return build(node, labels=labels)
    task: Task = build(node, links=links)
    assert links is not None
    links.check_trainable()
    return task


def held_out(node: Mapping[str, Any], graph: Graph) -> Graph:
    """``graph`` without the edges that the task of ``node`` holds out, before anything else sees them."""
    function = task_contract(target_of(node)).hold_out
    if function is None:
        return graph
    names = inspect.signature(function).parameters
    return function(graph, **{key: value for key, value in node.items() if key in names})


def log_default_metric(node: Mapping[str, Any], task: Task) -> None:
    """Log that weights of the classes have made another metric than the accuracy choose the best epoch.

    Args:
        node: the configuration of ``task``.
    """
    if node.get("class_weight") is not None and node.get("metrics") is None and task.metrics == WEIGHTED_DEFAULT:
        log.info(
            "the best epoch is chosen by the macro_f1 of val, since task.class_weight weighs the classes and the"
            " accuracy does not: give task.metrics=[accuracy] for the accuracy"
        )
