"""Several labels a node: binary cross-entropy."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fullgnn.graph.labels import LabelFacts
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.tasks.class_weight import ClassWeight
from fullgnn.tasks.metrics import OF_SCORES, ROC_AUC, UNKNOWN, f1_counts, f1_of_splits, mean_of_columns
from fullgnn.tasks.own_metrics import OwnMetrics
from fullgnn.tasks.task import SPLITS, OwnLossStatesAnew, TaskContract, by_split, is_larger, normalized_sum


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
        metrics: dict[str, float | None] = {}
        if {"micro_f1", "macro_f1"} & set(self.metrics):
            predicted = self.prediction(output)
            counts = torch.stack([f1_counts(predicted[mask], graph.labels[mask]) for mask in graph.masks])
            metrics |= f1_of_splits(counts, graph, scheme, every_label=True)
        metrics |= _of_scores(self.metrics, output, graph.labels, graph, scheme)
        if self._own is not None:
            metrics |= self._own.measure(self.prediction(output), output, graph, scheme)
        return by_split(self.metrics, metrics)

    def is_better(self, metric: float, best: float) -> bool:
        """See ``Task.is_better``: a larger score is better."""
        return is_larger(metric, best)

    def prediction(self, output: Tensor) -> Tensor:
        """(n, num_outputs) bool, the labels whose probability is above 1/2."""
        return output > 0


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
