"""The interface between a task and the training of a model."""

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.labels import LabelFacts
from fullgnn.schemes.base import Scheme, ShardedGraph

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


def part_of_loss(task: Task, output: Tensor, targets: Tensor, *total: float) -> Tensor:
    """This rank's part of the loss of ``task``; 0 without nodes, of which a mean is NaN, and of which some losses of
    torch return memory that nobody has written."""
    return task.loss(output, targets, *total) if len(output) else output.sum()


def normalized_sum(losses: Tensor, normalizer: float) -> Tensor:
    """The sum of this rank's ``losses``, added in float64, over the normaliser of the whole graph."""
    return (losses.sum(dtype=torch.float64) / normalizer).to(losses.dtype)


def chosen_metrics(given: Sequence[str] | None, known: Sequence[str], own: Sequence[str] = ()) -> tuple[str, ...]:
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


def by_split(names: Sequence[str], found: dict[str, float | None]) -> dict[str, float | None]:
    """The metrics ``names`` of every split, of those that were ``found``, in the order of ``Task.measure``.

    A metric that is not finite, since outputs are not, becomes None.
    """
    values = {f"{split}_{name}": found[f"{split}_{name}"] for name in names for split in SPLITS}
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
