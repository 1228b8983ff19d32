"""Node classification: one class a node (cross-entropy), or several labels a node (binary cross-entropy)."""

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import functional

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.labels import MAX_CLASSES, NUMBERED, LabelFacts
from fullgnn.kernels.loss.cross_entropy import cross_entropy
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.tasks.metrics import (
    OF_SCORES,
    ROC_AUC,
    UNKNOWN,
    balanced_accuracy,
    class_f1_counts,
    confusion_counts,
    f1_counts,
    f1_scores,
    mean_of_columns,
    one_vs_rest,
)
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

BALANCED = "balanced"
BALANCED_ACCURACY, CONFUSION = "balanced_accuracy", "confusion_matrix"


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
        weight = _weights(class_weight, labels, [mean_count / max(1, count) for count in labels.class_counts])
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
    weight = _weights(class_weight, labels, [(known - positive) / max(1, positive) for known, positive in counts])
    own = OwnMetrics(own_metrics, MultiLabel.known) if own_metrics else None
    names = MultiLabel.default if metrics is None else metrics
    return MultiLabel(
        labels, chosen_metrics(names, MultiLabel.known, own=own_metrics or ()), weight, label_smoothing, own
    )


class ClassWeight:
    """A weight for each class. Sums of weights are float64, whatever the outputs of the model are.

    Args:
        values: (num_classes,).
    """

    def __init__(self, values: Sequence[float]):
        self._values = torch.tensor(values, dtype=torch.float64)
        self._like: Tensor | None = None  # as the outputs are; a CUDA graph reads this very tensor

    def like(self, output: Tensor) -> Tensor:
        """(num_classes,), with the type and on the device of ``output``."""
        if self._like is None or (self._like.dtype, self._like.device) != (output.dtype, output.device):
            self._like = self._values.to(output)
        return self._like

    def sum_of(self, targets: Tensor) -> float:
        """The sum of the weights of the (n,) int64 ``targets``, whatever their order and the number of threads are."""
        counts = torch.bincount(targets.cpu(), minlength=len(self._values)).tolist()
        return sum(count * weight for count, weight in zip(counts, self._values.tolist(), strict=True))


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
        predicted, found = self.prediction(output), dict[str, float | None]()
        if "accuracy" in self.metrics:
            num_right = scheme.sum_over_rows((graph.masks & (predicted == graph.labels)).sum(dim=1)).tolist()
            for split, count, total in zip(SPLITS, num_right, graph.num_split_nodes):
                found[f"{split}_accuracy"] = count / total if total else None
        if {"micro_f1", "macro_f1", BALANCED_ACCURACY} & set(self.metrics):
            of_masks = (class_f1_counts(predicted, graph.labels, mask, self.num_outputs) for mask in graph.masks)
            found |= _f1(torch.stack([*of_masks]), graph, scheme, every_label=False)
        for name in set(OF_SCORES) & set(self.metrics):
            for split, mask in zip(SPLITS, graph.masks):
                scores, targets = one_vs_rest(output[mask], graph.labels[mask])
                found[f"{split}_{name}"] = mean_of_columns(name, scores, targets, scheme, every_column=True)
        if self._own is not None:
            found |= self._own.measure(predicted, output, graph, scheme)
        return by_split(self.metrics, found)

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


class MultiLabel(OwnLossStatesAnew):
    """Several labels a node: binary cross-entropy of each label's sigmoid, the mean over the known training labels.

    Metrics: ``micro_f1`` and ``macro_f1`` of the labels whose output is above 0, that is, whose probability is above
    1/2; ``roc_auc`` and ``average_precision``, means over the labels (``metrics.py``). Unknown labels count nowhere.
    ``class_weight=balanced`` is, for each label, negative / positive training nodes.

    Args:
        class_weight: (num_classes,), factors of the losses of positive nodes; None: all 1.
        label_smoothing: moves the targets 0 and 1 to ``label_smoothing / 2`` and 1 minus this.
    """

    contract = TaskContract(learns_batches=True)
    default = ("micro_f1", "macro_f1", ROC_AUC)
    known = ("micro_f1", "macro_f1", *OF_SCORES)

    def __init__(
        self,
        labels: LabelFacts,
        metrics: tuple[str, ...] = default,
        class_weight: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        own: OwnMetrics | None = None,
    ):
        self.num_outputs, self.metrics, self._smoothing = labels.num_classes, metrics, label_smoothing
        self._own = own
        self._weight = None if class_weight is None else ClassWeight(class_weight)
        self._normalizer = sum(labels.train_known)

    def targets(self, labels: Tensor) -> Tensor:
        """(n, num_outputs) int8 of 0 and 1; -1 if unknown."""
        return (labels.nan_to_num(UNKNOWN) if labels.is_floating_point() else labels).to(torch.int8)

    def loss(self, output: Tensor, targets: Tensor, total: float | None = None) -> Tensor:
        """See ``Task.loss``."""
        weight = None if self._weight is None else self._weight.like(output)
        known = (targets != UNKNOWN).to(output.dtype)
        smooth = targets.to(output.dtype) * (1 - self._smoothing) + self._smoothing / 2
        losses = functional.binary_cross_entropy_with_logits(output, smooth, known, reduction="none", pos_weight=weight)
        return normalized_sum(losses, self._normalizer if total is None else total)

    def total(self, targets: Tensor) -> float:
        """The number of known labels."""
        return int((targets != UNKNOWN).sum())

    def measure(self, output: Tensor, graph: ShardedGraph, scheme: Scheme) -> dict[str, float | None]:
        """See ``Task.measure``."""
        found: dict[str, float | None] = {}
        if {"micro_f1", "macro_f1"} & set(self.metrics):
            predicted = self.prediction(output)
            counts = torch.stack([f1_counts(predicted[mask], graph.labels[mask]) for mask in graph.masks])
            found |= _f1(counts, graph, scheme, every_label=True)
        found |= _of_scores(self.metrics, output, graph.labels, graph, scheme)
        if self._own is not None:
            found |= self._own.measure(self.prediction(output), output, graph, scheme)
        return by_split(self.metrics, found)

    def is_better(self, metric: float, best: float) -> bool:
        """See ``Task.is_better``: a larger score is better."""
        return is_larger(metric, best)

    def prediction(self, output: Tensor) -> Tensor:
        """(n, num_outputs) bool, the labels whose probability is above 1/2."""
        return output > 0


def _default_metrics(given: Any, weight: Sequence[float] | None) -> tuple[str, ...]:
    """The accuracy, which the majority decides, unless the weights that were ``given`` tell classes apart."""
    tells_apart = given == BALANCED or (weight is not None and len(set(weight)) > 1)
    return WEIGHTED_DEFAULT if tells_apart else ("accuracy",)


def _f1(counts: Tensor, graph: ShardedGraph, scheme: Scheme, every_label: bool) -> dict[str, float | None]:
    """The F1 scores and the balanced accuracy of each split from the (3, 3, C) local counts of all splits, in one sum
    over the ranks."""
    found: dict[str, float | None] = {}
    for split, count, total in zip(SPLITS, scheme.sum_over_rows(counts).cpu(), graph.num_split_nodes):
        scores = f1_scores(count, every_label)
        found |= {f"{split}_{name}": score if total else None for name, score in scores.items()}
        found[f"{split}_{BALANCED_ACCURACY}"] = balanced_accuracy(count)
    return found


def _of_scores(
    names: Sequence[str], scores: Tensor, targets: Tensor, graph: ShardedGraph, scheme: Scheme
) -> dict[str, float | None]:
    """The metrics of (n, C) scores that ``names`` has, of each split."""
    return {
        f"{split}_{name}": mean_of_columns(name, scores[mask], targets[mask], scheme)
        for name in OF_SCORES
        if name in names
        for split, mask in zip(SPLITS, graph.masks)
    }


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


def _weights(given: Any, labels: LabelFacts, balanced: Sequence[float]) -> list[float] | None:
    if given is None:
        return None
    if given == BALANCED:
        return list(balanced)
    try:
        if isinstance(given, Mapping):
            raise TypeError
        weights = [float(one) for one in given]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"task.class_weight={given} does not fit: give {BALANCED}, or a list of numbers") from error
    if len(weights) != labels.num_classes:
        raise ConfigError(
            f"task.class_weight has {len(weights)} numbers and the graph {labels.num_classes} classes: give one number"
            " of at least 0 for each class"
        )
    if not all(0 <= one < float("inf") for one in weights):
        raise ConfigError(f"task.class_weight={weights} does not fit: give finite numbers of at least 0")
    return weights
