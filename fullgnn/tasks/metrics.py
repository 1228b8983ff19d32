"""Metrics of predictions that are spread over the ranks. They are those of the whole graph, on any number of ranks."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.support import gpu
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.tasks.score_areas import average_precision, roc_auc
from fullgnn.tasks.task import SPLITS

UNKNOWN = -1
BALANCED_ACCURACY = "balanced_accuracy"


def f1_counts(predicted: Tensor, targets: Tensor) -> Tensor:
    """(3, C) int64 local counts of each label: true positives, positive predictions and positive targets.

    Args:
        predicted: (n, C) bool.
        targets: (n, C) int8 of 0 and 1; entries that are ``UNKNOWN`` do not count.
    """
    positive, known = targets == 1, targets != UNKNOWN
    predicted = predicted & known
    return torch.stack([(predicted & positive).sum(dim=0), predicted.sum(dim=0), positive.sum(dim=0)])


def class_f1_counts(predicted: Tensor, targets: Tensor, mask: Tensor, num_classes: int) -> Tensor:
    """``f1_counts`` of one class a node, of the nodes in ``mask``: (3, num_classes) int64.

    Args:
        predicted: (n,) int64, the predicted class; ``UNKNOWN`` for a node without one.
        targets: (n,) int64, the class.
        mask: (n,) bool; the class of its nodes is known.
    """
    if not gpu.runs_host_loops(predicted.device):  # counts of fixed size, for which the host does not wait
        counts = predicted.new_zeros(3, num_classes + 1)
        kept = mask & (predicted == targets), mask & (predicted != UNKNOWN), mask
        for row, classes, keep in zip(counts, (targets, predicted, targets), kept):
            row.index_add_(0, classes.where(keep, num_classes), torch.ones_like(classes))
        return counts[:, :num_classes]
    predicted, targets = predicted[mask], targets[mask]
    groups = targets[predicted == targets], predicted[predicted != UNKNOWN], targets
    return torch.stack([classes.bincount(minlength=num_classes) for classes in groups])


def f1_scores(counts: Tensor, every_label: bool) -> dict[str, float]:
    """``micro_f1`` and ``macro_f1`` from GLOBAL ``f1_counts``.

    F1 = 2 TP / (predicted + actual positives), of all labels together (micro), or the mean over the labels (macro).

    Args:
        every_label: whether a label that is neither predicted nor there counts in ``macro_f1``, with an F1 of 0. As in
            scikit-learn, it does where a node has several labels, and does not where a node has one class.
    """
    hits, predicted, actual = counts.double()
    positives = predicted + actual
    of_labels = 2 * hits / positives.clamp(min=1)
    counted = of_labels if every_label else of_labels[positives > 0]
    return {
        "micro_f1": 2 * hits.sum().item() / max(positives.sum().item(), 1.0),
        "macro_f1": counted.mean().item() if len(counted) else 0.0,
    }


def f1_of_splits(counts: Tensor, graph: ShardedGraph, scheme: Scheme, every_label: bool) -> dict[str, float | None]:
    """The F1 scores and the balanced accuracy of each split from the (3, 3, C) local counts of all splits, in one sum
    over the ranks."""
    measured: dict[str, float | None] = {}
    for split, count, total in zip(SPLITS, scheme.sum_over_rows(counts).cpu(), graph.num_split_nodes):
        scores = f1_scores(count, every_label)
        measured |= {f"{split}_{name}": score if total else None for name, score in scores.items()}
        measured[f"{split}_{BALANCED_ACCURACY}"] = balanced_accuracy(count)
    return measured


def balanced_accuracy(counts: Tensor) -> float | None:
    """The mean recall of the classes that nodes have, from GLOBAL ``class_f1_counts``, as in scikit-learn; None without
    nodes."""
    hits, _, actual = counts.double()
    there = actual > 0
    return (hits[there] / actual[there]).mean().item() if there.any() else None


def confusion_counts(predicted: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """(num_classes, num_classes) int64 local counts of nodes, by class and predicted class; a node without a predicted
    class does not count.

    Args:
        predicted, targets: see ``class_f1_counts``.
    """
    known = predicted != UNKNOWN
    pairs = targets[known] * num_classes + predicted[known]
    return pairs.bincount(minlength=num_classes**2).reshape(num_classes, num_classes)


ROC_AUC, AVERAGE_PRECISION = "roc_auc", "average_precision"
OF_SCORES = (ROC_AUC, AVERAGE_PRECISION)
"""The metrics of scores, which compare the scores of all nodes with each other."""


def one_vs_rest(output: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """The scores and the targets by which each class is told from all others.

    Args:
        output: (n, C) of the model.
        classes: (n,) int64.

    Returns:
        (n, C) float64 scores: of two classes, the output of class 1 minus that of class 0, one column; otherwise the
        probabilities of the softmax. Inf where an output is not finite. And int64 targets of the same shape, 0 and 1.
    """
    if output.shape[1] == 2:
        return output[:, 1:].double() - output[:, :1], classes[:, None]
    targets = torch.zeros_like(output, dtype=torch.int64).scatter_(1, classes[:, None], 1)
    scores = output.double().softmax(dim=1)
    return scores.masked_fill(~output.isfinite().all(dim=1, keepdim=True), float("inf")), targets


def mean_of_columns(
    name: str, scores: Tensor, targets: Tensor, scheme: Scheme, every_column: bool = False
) -> float | None:
    """The mean over the labels of a metric of ``OF_SCORES``, as scikit-learn computes it. Every rank calls it.

    ``roc_auc`` is the area under the ROC curve, and ``average_precision`` the sum over the distinct scores of the
    precision there, times the gain in recall. The metric of one label compares the scores of all nodes, so each rank
    receives all rows of some columns. A label that has no such metric does not count: one without a positive node, and
    for ``roc_auc`` one without a negative node.

    Args:
        scores: (num_own, C), of some rows of this rank.
        targets: (num_own, C) integers, 0 and 1, or ``UNKNOWN``.
        every_column: whether there is no mean if a label does not have the metric, as of classes that are told from all
            others.

    Returns:
        a number in [0, 1]; None if no label has the metric, or a score of a known label is not finite.
    """
    both = torch.stack([scores.double(), targets.double()], dim=2)
    by_column = scheme.of_columns(both, partial(_of_columns, name))
    counted = by_column[~by_column.isnan()]
    lacks = len(counted) < (len(by_column) if every_column else 1)
    return counted.mean().item() if not lacks and counted.isfinite().all() else None


def _of_columns(name: str, columns: Tensor) -> Tensor:
    """The metric ``name`` of each column of (n, C, 2) scores and targets; NaN if the column has none, Inf if a score is
    not finite. A GPU computes it, within 1e-12 of scikit-learn."""
    if not gpu.runs_host_loops(columns.device):
        scores, targets = columns.unbind(dim=2)
        infinite = (~scores.isfinite() & (targets != UNKNOWN)).any(dim=0)
        areas = {ROC_AUC: roc_auc, AVERAGE_PRECISION: average_precision}[name](scores, targets)
        return areas.masked_fill(infinite, float("inf"))
    from sklearn import metrics  # imported here, since it takes a second

    compute = {ROC_AUC: metrics.roc_auc_score, AVERAGE_PRECISION: metrics.average_precision_score}[name]
    by_column = np.full(columns.shape[1], np.nan)
    for number, column in enumerate(columns.cpu().numpy().transpose(1, 0, 2)):
        scores, targets = column[column[:, 1] != UNKNOWN].T
        num_positive = int(targets.sum())
        if not np.isfinite(scores).all():
            by_column[number] = np.inf
        elif num_positive and (num_positive < len(targets) or name == AVERAGE_PRECISION):
            by_column[number] = compute(targets, scores)
    return torch.from_numpy(by_column)
