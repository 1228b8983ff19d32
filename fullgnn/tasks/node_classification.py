"""Node classification: one class a node (cross-entropy), or several labels a node (``multi_label.py``)."""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import functional

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.labels import MAX_CLASSES, NUMBERED, LabelFacts
from fullgnn.kernels.loss.cross_entropy import cross_entropy
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.tasks.class_weight import BALANCED, ClassWeight, class_weights
from fullgnn.tasks.metrics import (
    BALANCED_ACCURACY,
    OF_SCORES,
    UNKNOWN,
    class_f1_counts,
    confusion_counts,
    f1_of_splits,
    mean_of_columns,
    one_vs_rest,
)
from fullgnn.tasks.multi_label import MultiLabel
from fullgnn.tasks.own_metrics import OwnMetrics
from fullgnn.tasks.task import (
    SPLITS,
    WEIGHTED_DEFAULT,
    OwnLossStatesAnew,
    TaskContract,
    by_split,
    check_trainable,
    chosen_metrics,
    is_larger,
    normalized_sum,
    states,
)

CONFUSION = "confusion_matrix"


@states(TaskContract(learns_labels=True, learns_batches=True))
def node_classification(
    labels: LabelFacts,
    metrics: Optional[list[str]] = None,
    class_weight: Any = None,
    label_smoothing: float = 0.0,
    own_metrics: Optional[dict[str, Any]] = None,
) -> "MultiClass | MultiLabel":
    """Build the task: ``MultiClass`` for labels (num_nodes,), ``MultiLabel`` for labels (num_nodes, c).

    Args:
        metrics: of ``MultiClass``: accuracy, balanced_accuracy, micro_f1, macro_f1, roc_auc, average_precision, and
            confusion_matrix, which is no number but a field of the record. By default only accuracy; with weights that
            tell classes apart, macro_f1 and accuracy. Of ``MultiLabel``: micro_f1, macro_f1, roc_auc (these by default)
            and average_precision. The first one chooses the best epoch.
        class_weight: a weight for each class, ``balanced``, or None. See the two tasks.
        label_smoothing: how much of a target is spread evenly over the classes, in [0, 1).
        own_metrics: by name, functions of a user's own, see ``OwnMetrics``. They follow the other metrics, unless
            ``metrics`` has their names too.

    Raises:
        ConfigError: a key is out of range.
        DataError: the labels are no classes, or there is nothing to train on.
    """
    if not 0 <= label_smoothing < 1:
        raise ConfigError(f"task.label_smoothing={label_smoothing} is out of range: it must lie in [0, 1)")
    if isinstance(class_weight, str) and class_weight != BALANCED:
        raise ConfigError(f"task.class_weight={class_weight} is not known: give {BALANCED}, or a list of numbers")
    check_trainable(labels)
    if labels.columns is None:
        if not labels.integral:
            raise DataError(
                "task=node_classification takes classes 0, 1, ... (unknown: -1, in floats NaN), and the labels hold"
                f" other numbers: choose task=node_regression, or number the classes as {NUMBERED}"
            )
        if labels.num_classes > MAX_CLASSES:
            raise DataError(
                f"task=node_classification takes up to {MAX_CLASSES} classes, and the labels go up to"
                f" {labels.num_classes - 1}: choose task=node_regression, or number the classes as {NUMBERED}"
            )
        mean_count = labels.num_train / labels.num_classes
        balanced = [mean_count / max(1, count) for count in labels.class_counts]
        weight = None if class_weight is None else class_weights(class_weight, labels, balanced)
        own = OwnMetrics(own_metrics, MultiClass.known) if own_metrics else None
        names = _default_metrics(class_weight, weight) if metrics is None else metrics
        names = chosen_metrics(names, MultiClass.known, own=own_metrics or ())
        if names == (CONFUSION,):
            raise ConfigError(f"task.metrics=[{CONFUSION}] chooses no best epoch: add a metric that is a number")
        return MultiClass(labels, names, weight, label_smoothing, own)
    if not labels.binary:
        raise DataError(
            "task=node_classification takes 0 or 1 in labels of several columns, and they hold other numbers: choose"
            " task=node_regression"
        )
    counts = zip(labels.train_known, labels.train_sum)
    balanced = [(known - positive) / max(1, positive) for known, positive in counts]
    weight = None if class_weight is None else class_weights(class_weight, labels, balanced)
    own = OwnMetrics(own_metrics, MultiLabel.known) if own_metrics else None
    names = MultiLabel.default if metrics is None else metrics
    return MultiLabel(
        labels, chosen_metrics(names, MultiLabel.known, own=own_metrics or ()), weight, label_smoothing, own
    )


class MultiClass(OwnLossStatesAnew):
    """One class a node: cross-entropy of the softmax, weighted by class, over the sum of the training nodes' weights.

    Metrics: ``accuracy``; ``balanced_accuracy``, the mean recall of the classes that the split holds; ``micro_f1`` (the
    same number as the accuracy) and ``macro_f1``, the mean over the classes that the split holds or that are predicted
    there. A node whose output is NaN has no predicted class and counts as wrong. ``roc_auc`` and ``average_precision``
    (``metrics.py``): of two classes those of class 1, scored by its output minus that of class 0; of more, the mean
    over the classes, each told from all others by its probability, and null where the split lacks a class.
    ``class_weight=balanced`` is num_train / (num_classes * count of the class), as in scikit-learn.

    Args:
        class_weight: (num_classes,); None: all 1.
        label_smoothing: see ``torch.nn.functional.cross_entropy``.
    """

    contract = TaskContract(learns_batches=True)
    known = ("accuracy", BALANCED_ACCURACY, "micro_f1", "macro_f1", *OF_SCORES, CONFUSION)

    def __init__(
        self,
        labels: LabelFacts,
        metrics: tuple[str, ...] = ("accuracy",),
        class_weight: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        own: OwnMetrics | None = None,
    ):
        self.num_outputs, self._smoothing, self._own = labels.num_classes, label_smoothing, own
        self.metrics = tuple(name for name in metrics if name != CONFUSION)
        self.counts_confusion = CONFUSION in metrics
        self._weight = None if class_weight is None else ClassWeight(class_weight)
        self._normalizer: float = labels.num_train
        if class_weight is not None:
            self._normalizer = sum(count * weight for count, weight in zip(labels.class_counts, class_weight))
        if not self._normalizer:
            raise ConfigError(
                "task.class_weight gives every training node the weight 0: give a class that occurs a weight"
            )

    def targets(self, labels: Tensor) -> Tensor:
        """(n,) int64; -1 if unknown."""
        return (labels.nan_to_num(-1) if labels.is_floating_point() else labels).long()

    def loss(self, output: Tensor, targets: Tensor, total: float | None = None) -> Tensor:
        """See ``Task.loss``."""
        total = self._normalizer if total is None else total
        if self._weight is None and not self._smoothing:
            return _CrossEntropy.apply(output, targets, 1 / total)
        weight = None if self._weight is None else self._weight.like(output)
        losses = functional.cross_entropy(output, targets, weight, reduction="none", label_smoothing=self._smoothing)
        return normalized_sum(losses, total)

    def total(self, targets: Tensor) -> float:
        """The sum of the class weights of the targets."""
        return len(targets) if self._weight is None else self._weight.sum_of(targets)

    def measure(self, output: Tensor, graph: ShardedGraph, scheme: Scheme) -> dict[str, float | None]:
        """See ``Task.measure``."""
        predicted, metrics = self.prediction(output), dict[str, float | None]()
        if "accuracy" in self.metrics:
            num_right = scheme.sum_over_rows((graph.masks & (predicted == graph.labels)).sum(dim=1)).tolist()
            for split, count, total in zip(SPLITS, num_right, graph.num_split_nodes):
                metrics[f"{split}_accuracy"] = count / total if total else None
        if {"micro_f1", "macro_f1", BALANCED_ACCURACY} & set(self.metrics):
            of_masks = (class_f1_counts(predicted, graph.labels, mask, self.num_outputs) for mask in graph.masks)
            metrics |= f1_of_splits(torch.stack([*of_masks]), graph, scheme, every_label=False)
        for name in (name for name in OF_SCORES if name in self.metrics):
            for split, mask in zip(SPLITS, graph.masks):
                scores, targets = one_vs_rest(output[mask], graph.labels[mask])
                metrics[f"{split}_{name}"] = mean_of_columns(name, scores, targets, scheme, every_column=True)
        if self._own is not None:
            metrics |= self._own.measure(predicted, output, graph, scheme)
        return by_split(self.metrics, metrics)

    def confusion(self, output: Tensor, graph: ShardedGraph, scheme: Scheme) -> dict[str, list[list[int]]]:
        """See ``CountsConfusion``."""
        predicted = self.prediction(output)
        of_masks = (confusion_counts(predicted[mask], graph.labels[mask], self.num_outputs) for mask in graph.masks)
        counts = scheme.sum_over_rows(torch.stack([*of_masks])).tolist()
        return {split: matrix for split, matrix, total in zip(SPLITS, counts, graph.num_split_nodes) if total}

    def is_better(self, metric: float, best: float) -> bool:
        """See ``Task.is_better``: a larger score is better."""
        return is_larger(metric, best)

    def prediction(self, output: Tensor) -> Tensor:
        """(n,) int64, the class with the largest output; -1 for a node with an output that is NaN."""
        largest = output.argmax(dim=1)  # that of NaN, if there is one
        return largest.masked_fill(output.gather(1, largest[:, None])[:, 0].isnan(), UNKNOWN)


def _default_metrics(given: Any, weight: Sequence[float] | None) -> tuple[str, ...]:
    """The accuracy, which the majority decides, unless the weights that were ``given`` tell classes apart."""
    tells_apart = given == BALANCED or (weight is not None and len(set(weight)) > 1)
    return WEIGHTED_DEFAULT if tells_apart else ("accuracy",)


class _CrossEntropy(torch.autograd.Function):
    """The last operation of a step: the forward pass computes the loss and its gradient at once."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, scale: float) -> Tensor:
        loss, gradient = cross_entropy(logits, labels, scale)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient_of_loss: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the logits. ``gradient_of_loss`` is 1, since no operation follows the loss."""
        return ctx.saved_tensors[0], None, None
