"""Metrics of predictions that are spread over the ranks. They are those of the whole graph, on any number of ranks."""

import numpy as np
import torch
from torch import Tensor

from fullgnn.schemes.base import Scheme

UNKNOWN = -1


def f1_counts(predicted: Tensor, targets: Tensor) -> Tensor:
    """(3, C) int64 local counts of each label: true positives, positive predictions and positive targets.

    Args:
        predicted: (n, C) bool.
        targets: (n, C) int8 of 0 and 1; entries that are ``UNKNOWN`` do not count.
    """
    positive, known = targets == 1, targets != UNKNOWN
    predicted = predicted & known
    return torch.stack([(predicted & positive).sum(dim=0), predicted.sum(dim=0), positive.sum(dim=0)])


def f1_scores(counts: Tensor) -> dict[str, float]:
    """``micro_f1`` and ``macro_f1`` from GLOBAL ``f1_counts``.

    F1 = 2 TP / (predicted + actual positives), of all labels together (micro), or the mean over the labels (macro). As
    in scikit-learn, F1 is 0 for a label that is neither predicted nor there.
    """
    hits, predicted, actual = counts.double()
    of_labels = 2 * hits / (predicted + actual).clamp(min=1)
    total = max((predicted + actual).sum().item(), 1.0)
    return {"micro_f1": 2 * hits.sum().item() / total, "macro_f1": of_labels.mean().item()}


def mean_roc_auc(scores: Tensor, targets: Tensor, scheme: Scheme) -> float | None:
    """The mean over the labels of the area under the ROC curve, as ogbn-proteins is scored. Every rank calls it.

    The area of one label compares the scores of all nodes, so each rank receives all rows of some columns. A label
    without a positive or without a negative node has no area and does not count.

    Args:
        scores: (num_own, C), of some rows of this rank.
        targets: (num_own, C) int8 of 0 and 1, or ``UNKNOWN``.

    Returns:
        a number in [0, 1]; None if no label has an area.
    """
    both = torch.stack([scores.double(), targets.double()], dim=2)
    areas = scheme.of_columns(both, _areas)
    known = ~areas.isnan()
    return areas[known].mean().item() if known.any() else None


def _areas(columns: Tensor) -> Tensor:
    """The area under the ROC curve of each column of (n, C, 2) scores and targets; NaN if there is none."""
    from sklearn.metrics import roc_auc_score  # imported here, since it takes a second

    areas = np.full(columns.shape[1], np.nan)
    for number, column in enumerate(columns.cpu().numpy().transpose(1, 0, 2)):
        known = column[column[:, 1] != UNKNOWN]
        if len(known) and 0 < known[:, 1].sum() < len(known):
            areas[number] = roc_auc_score(known[:, 1], known[:, 0])
    return torch.from_numpy(areas)
